package dev.towline.e2e;

import java.util.Map;
import java.util.TreeMap;

/**
 * Runs one scenario by its name against one queue manager: {@code Main SCENARIO URL ARGUMENTS...}.
 *
 * <p>Ends with exit code 0 when all was as JMS promises. What each scenario proves is in the class that
 * has it; this class only finds it.
 */
public final class Main {
  private Main() {}

  /** A proof that runs against a real queue manager. */
  @FunctionalInterface
  interface Scenario {
    void run(Bed bed) throws Exception;
  }

  public static void main(String[] arguments) {
    Map<String, Scenario> scenarios = new TreeMap<>();
    Queues.into(scenarios);
    Messages.into(scenarios);
    Acknowledging.into(scenarios);
    Transactions.into(scenarios);
    Selectors.into(scenarios);
    Browsing.into(scenarios);
    Temporary.into(scenarios);
    Refusals.into(scenarios);
    Login.into(scenarios);
    Redirect.into(scenarios);
    if (arguments.length < 2 || !scenarios.containsKey(arguments[0])) {
      System.err.println("usage: Main SCENARIO URL ARGUMENTS...; scenarios: " + scenarios.keySet());
      System.exit(2);
    }
    int code = 0;
    try (Bed bed = new Bed(arguments)) {
      scenarios.get(arguments[0]).run(bed);
      System.out.println("passed " + arguments[0]);
    } catch (Throwable failure) {
      failure.printStackTrace();
      code = 1;
    }
    System.exit(code);
  }
}
