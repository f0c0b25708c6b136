package dev.towline.lab;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** CPU time of another process on this machine, from /proc (user and system, in ticks of 10 ms). */
final class ServerCpu {
    private static final long MICROS_PER_TICK = 10_000;

    private ServerCpu() {}

    /** CPU microseconds that the process used so far; 0 for pid 0 (not asked for). */
    static long micros(long pid) throws IOException {
        if (pid == 0) {
            return 0;
        }
        String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
        // The command name may hold spaces and brackets: fields are counted after its last bracket.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) * MICROS_PER_TICK;
    }
}
