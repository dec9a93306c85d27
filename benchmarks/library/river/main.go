// River as a producer and a worker, with the same arguments and the same lines of JSON as program.py:
//
//	program produce|work ADDRESS CLASS SLOTS LEDGER NAME
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sys/unix"
)

const (
	callers     = 64
	hundred     = 100
	connections = 20
	// Slots for jobs that take no time: with 20, a fetch would bring 20 jobs at most.
	slotsUsual = 500
)

var ledger *os.File

func monotonicNs() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return uint64(now.Nano())
}

// record leaves an effect that survives a kill of this process.
func record(number, sentNs uint64) error {
	var bytes [24]byte
	binary.LittleEndian.PutUint64(bytes[0:], number)
	binary.LittleEndian.PutUint64(bytes[8:], sentNs)
	binary.LittleEndian.PutUint64(bytes[16:], monotonicNs())
	_, err := ledger.Write(bytes[:])
	return err
}

type call struct {
	Task     string `json:"task"`
	Number   uint64 `json:"number"`
	Argument uint64 `json:"argument"`
}

func (call) Kind() string { return "call" }

type worker struct {
	river.WorkerDefaults[call]
}

func (*worker) Work(_ context.Context, job *river.Job[call]) error {
	switch job.Args.Task {
	case "stamp":
		return record(job.Args.Number, job.Args.Argument)
	case "nap_async":
		time.Sleep(time.Duration(job.Args.Argument) * time.Millisecond)
	}
	return record(job.Args.Number, 0)
}

type asked struct {
	Do       string  `json:"do"`
	Way      string  `json:"way"`
	Task     string  `json:"task"`
	Argument uint64  `json:"argument"`
	First    uint64  `json:"first"`
	CountMax uint64  `json:"count_max"`
	Count    uint64  `json:"count"`
	Seconds  float64 `json:"seconds"`
	PerS     float64 `json:"per_s"`
}

// quota hands out calls with ascending ids, until there were enough or the time is over.
type quota struct {
	asked
	lock  sync.Mutex
	taken uint64
	ends  time.Time
}

func (q *quota) take(wanted uint64) []call {
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.ends.IsZero() && !time.Now().Before(q.ends) {
		return nil
	}
	wanted = min(wanted, q.CountMax-q.taken)
	calls := make([]call, 0, wanted)
	for range wanted {
		calls = append(calls, call{Task: q.Task, Number: q.First + q.taken, Argument: q.Argument})
		q.taken++
	}
	return calls
}

func enqueueSingles(ctx context.Context, client *river.Client[pgx.Tx], q *quota) {
	for calls := q.take(1); len(calls) > 0; calls = q.take(1) {
		check(client.Insert(ctx, calls[0], nil))
	}
}

func enqueueHundreds(ctx context.Context, client *river.Client[pgx.Tx], q *quota) {
	for calls := q.take(hundred); len(calls) > 0; calls = q.take(hundred) {
		params := make([]river.InsertManyParams, len(calls))
		for index, each := range calls {
			params[index] = river.InsertManyParams{Args: each}
		}
		check(client.InsertManyFast(ctx, params))
	}
}

func produce(ctx context.Context, client *river.Client[pgx.Tx]) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var wanted asked
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			fail(err)
		}
		started := time.Now()
		count := wanted.Count
		if wanted.Do == "pace" {
			for index := range wanted.Count {
				time.Sleep(time.Until(started.Add(time.Duration(float64(index) / wanted.PerS * float64(time.Second)))))
				check(client.Insert(ctx, call{Task: "stamp", Number: wanted.First + index, Argument: monotonicNs()}, nil))
			}
		} else {
			count = enqueue(ctx, client, wanted, started)
		}
		fmt.Printf("{\"seconds\": %f, \"count\": %d}\n", time.Since(started).Seconds(), count)
	}
}

func enqueue(ctx context.Context, client *river.Client[pgx.Tx], wanted asked, started time.Time) uint64 {
	q := &quota{asked: wanted}
	if wanted.Seconds > 0 {
		q.ends = started.Add(time.Duration(wanted.Seconds * float64(time.Second)))
	}
	switch wanted.Way {
	case "callers":
		var all sync.WaitGroup
		for range callers {
			all.Go(func() { enqueueSingles(ctx, client, q) })
		}
		all.Wait()
	case "hundreds":
		enqueueHundreds(ctx, client, q)
	default:
		enqueueSingles(ctx, client, q)
	}
	return q.taken
}

func work(ctx context.Context, client *river.Client[pgx.Tx]) {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	if err := client.Start(ctx); err != nil {
		fail(err)
	}
	fmt.Println("ready at :0")
	<-stopped
	if err := client.Stop(ctx); err != nil {
		fail(err)
	}
}

func main() {
	side, address, ledgerPath := os.Args[1], os.Args[2], os.Args[5]
	slots, err := strconv.Atoi(os.Args[4])
	if err != nil {
		fail(err)
	}
	if slots == 0 {
		slots = slotsUsual
	}
	if ledger, err = os.OpenFile(ledgerPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		fail(err)
	}
	ctx := context.Background()
	settings, err := pgxpool.ParseConfig(address)
	if err != nil {
		fail(err)
	}
	settings.MaxConns = connections
	pool := check(pgxpool.NewWithConfig(ctx, settings))
	driver := riverpgxv5.New(pool)
	config := &river.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if side == "work" {
		workers := river.NewWorkers()
		river.AddWorker(workers, &worker{})
		config.Workers = workers
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}
		// The least that it allows: with its usual 100 ms, 20 slots would be 200 jobs a second.
		config.FetchCooldown = river.FetchCooldownMin
		work(ctx, check(river.NewClient(driver, config)))
		return
	}
	migrator := check(rivermigrate.New(driver, nil))
	check(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
	produce(ctx, check(river.NewClient(driver, config)))
}

func check[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
