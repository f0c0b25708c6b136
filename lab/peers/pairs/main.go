// Command pairs drives a broker with clients, one operation in flight each, and says what came of it as JSON. It is
// the one generator for comparisons between brokers of different protocols (AMQP 1.0, NATS JetStream).
//
//	pairs -kind amqp|nats -urls URL,URL -address ADDRESS -clients N [-puts] [-rate R] [-warmup S] -seconds S [-events FILE]
//
// A pair: put one, wait until it is confirmed, get one, accept it (the accepting is sent and not answered, in both
// protocols). With -puts clients only put, each -rate times a second, and connect again when their connection is lost;
// -events then says when puts were confirmed, and connections lost and opened (us since 1970, client, what).
// Bodies are random bytes. Not here: starting brokers, and what the figures mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// client is one connection. Each method waits until it is done.
type client interface {
	// put returns when the broker has confirmed the message.
	put(ctx context.Context, body []byte) error
	// get returns when a message has come and its acceptance is sent.
	get(ctx context.Context) error
	// gone is closed when the connection has ended.
	gone() <-chan struct{}
	close()
}

// open connects a client; gets says whether it will get.
type open func(ctx context.Context, urls []string, address string, gets bool) (client, error)

// patience is how long one operation may take before its connection counts as lost.
const patience = 2 * time.Second

// settings is what the command line says.
type settings struct {
	kind, address, events string
	urls                  []string
	clients, size         int
	puts, prepares        bool
	rate                  float64
	warmup, seconds       time.Duration
}

// event is what happened to a client.
type event struct {
	us     int64
	client int
	what   string
}

// worker is a client and what it counted.
type worker struct {
	settings
	number    int
	open      open
	body      []byte
	measuring *atomic.Bool
	pairs     int64
	times     []time.Duration
	events    []event
	errors    int64
	lastError string
}

func main() {
	// The processors belong to the brokers: memory is cheaper here than collecting it.
	debug.SetGCPercent(400)
	found := read()
	if found.prepares {
		leader, err := prepareNats(found.urls, found.address)
		if err != nil {
			fmt.Fprintln(os.Stderr, "pairs:", err)
			os.Exit(1)
		}
		fmt.Println(leader)
		return
	}
	workers, cpu, err := run(found)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pairs:", err)
		os.Exit(1)
	}
	if found.events != "" {
		if err := write(found.events, workers); err != nil {
			fmt.Fprintln(os.Stderr, "pairs:", err)
			os.Exit(1)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(report(found, workers, cpu))
}

func read() settings {
	var found settings
	var urls string
	var warmup, seconds float64
	flag.StringVar(&found.kind, "kind", "amqp", "amqp or nats")
	flag.StringVar(&urls, "urls", "", "addresses, with commas, the one to begin with first")
	flag.StringVar(&found.address, "address", "lab", "queue (AMQP) or subject (NATS)")
	flag.StringVar(&found.events, "events", "", "file for events")
	flag.IntVar(&found.clients, "clients", 1, "clients")
	flag.IntVar(&found.size, "size", 2048, "bytes of a body")
	flag.BoolVar(&found.puts, "puts", false, "put only, and connect again")
	flag.BoolVar(&found.prepares, "prepare", false, "NATS: make the stream, say which server leads it, and end")
	flag.Float64Var(&found.rate, "rate", 0, "puts a second of each client")
	flag.Float64Var(&warmup, "warmup", 0, "seconds before it is measured")
	flag.Float64Var(&seconds, "seconds", 10, "seconds")
	flag.Parse()
	found.urls = strings.Split(urls, ",")
	found.warmup = time.Duration(warmup * float64(time.Second))
	found.seconds = time.Duration(seconds * float64(time.Second))
	return found
}

// run connects all clients, lets them work, and waits for them; also its own processor time while it measured.
func run(found settings) ([]*worker, time.Duration, error) {
	opens := map[string]open{"amqp": openAmqp, "nats": openNats}
	if opens[found.kind] == nil {
		return nil, 0, errors.New("kind: amqp or nats")
	}
	var measuring, stop atomic.Bool
	workers := make([]*worker, found.clients)
	var connected, done sync.WaitGroup
	begin := make(chan struct{})
	failed := make(chan error, found.clients)
	// All at once would find the brokers' backlog of connections full.
	doors := make(chan struct{}, 32)
	for number := range workers {
		one := &worker{settings: found, number: number, open: opens[found.kind], measuring: &measuring, body: body(found.size)}
		workers[number] = one
		connected.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			doors <- struct{}{}
			opened, err := one.connect()
			<-doors
			connected.Done()
			if err != nil {
				failed <- err
				return
			}
			<-begin
			one.work(opened, &stop)
		}()
	}
	connected.Wait()
	select {
	case err := <-failed:
		return nil, 0, err
	default:
	}
	// Who starts a fault waits for this line.
	fmt.Fprintln(os.Stderr, "connected")
	close(begin)
	time.Sleep(found.warmup)
	before := processorTime()
	measuring.Store(true)
	time.Sleep(found.seconds)
	measuring.Store(false)
	cpu := processorTime() - before
	stop.Store(true)
	done.Wait()
	return workers, cpu, nil
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (one *worker) connect() (client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return one.open(ctx, one.urls, one.address, !one.puts)
}

func (one *worker) work(opened client, stop *atomic.Bool) {
	if one.puts {
		one.putOnly(opened, stop)
		return
	}
	defer opened.close()
	for !stop.Load() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		err := opened.put(ctx, one.body)
		if err == nil {
			err = opened.get(ctx)
		}
		cancel()
		if err != nil {
			one.failed(err)
			return
		}
		if one.measuring.Load() {
			one.pairs++
			one.times = append(one.times, time.Since(began))
		}
	}
}

func (one *worker) failed(err error) {
	one.errors++
	one.lastError = err.Error()
}

// putOnly puts at its pace, and after a loss as soon as it is connected again.
func (one *worker) putOnly(opened client, stop *atomic.Bool) {
	period := time.Duration(float64(time.Second) / one.rate)
	next := time.Now().Add(time.Duration(rand.Int64N(int64(period))))
	for !stop.Load() {
		for opened != nil && !stop.Load() && time.Now().Before(next) {
			opened = one.rest(opened, time.Until(next), stop)
		}
		// Who is late does not catch up: one put for those that were missed.
		for next.Before(time.Now()) {
			next = next.Add(period)
		}
		for !stop.Load() {
			if opened == nil {
				opened = one.again(stop)
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := opened.put(ctx, one.body)
			cancel()
			if err == nil {
				one.note("put")
				break
			}
			one.lose(opened, err)
			opened = nil
		}
	}
	if opened != nil {
		opened.close()
	}
}

// rest waits for so long; who loses its connection meanwhile connects again at once.
func (one *worker) rest(opened client, wait time.Duration, stop *atomic.Bool) client {
	select {
	case <-time.After(wait):
		return opened
	case <-opened.gone():
		one.lose(opened, errors.New("the connection ended"))
		return one.again(stop)
	}
}

func (one *worker) lose(opened client, err error) {
	one.failed(err)
	one.note("lost")
	go opened.close()
}

// again tries until there is a connection or it is time to stop.
func (one *worker) again(stop *atomic.Bool) client {
	for !stop.Load() {
		opened, err := one.connect()
		if err == nil {
			one.note("open")
			return opened
		}
		one.failed(err)
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (one *worker) note(what string) {
	one.events = append(one.events, event{time.Now().UnixMicro(), one.number, what})
}

func body(size int) []byte {
	made := make([]byte, size)
	for index := range made {
		made[index] = byte(rand.Uint32())
	}
	return made
}

func write(path string, workers []*worker) error {
	var all []event
	for _, one := range workers {
		all = append(all, one.events...)
	}
	slices.SortFunc(all, func(a, b event) int { return int(a.us - b.us) })
	var text strings.Builder
	text.WriteString("us,client,what\n")
	for _, one := range all {
		fmt.Fprintf(&text, "%d,%d,%s\n", one.us, one.client, one.what)
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

func report(found settings, workers []*worker, cpu time.Duration) map[string]any {
	var pairs, failures int64
	var times []time.Duration
	last := ""
	for _, one := range workers {
		pairs += one.pairs
		failures += one.errors
		times = append(times, one.times...)
		if one.lastError != "" {
			last = one.lastError
		}
	}
	slices.Sort(times)
	return map[string]any{
		"pairs": pairs, "pairs_per_s": float64(pairs) / found.seconds.Seconds(), "clients": found.clients,
		"p50_ms": quantile(times, 0.5), "p99_ms": quantile(times, 0.99), "errors": failures, "last_error": last,
		"generator_cpu_s": cpu.Seconds(),
	}
}

func quantile(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(share*float64(len(sorted)-1))].Microseconds()) / 1e3
}
