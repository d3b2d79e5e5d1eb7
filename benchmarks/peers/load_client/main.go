// Command load-client puts load on a cluster of Kafka's protocol, and prints what it has measured as one JSON object.
//
// Its commands are requests, idle, produce, live, read and group. All take the flags of target. The client is compiled,
// so that it is not the bottleneck of what it measures.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	clientID = "load-client"
	timeout  = 60 * time.Second
	// ticksPerSecond is Linux's USER_HZ, which is 100 on all of its platforms that Go supports.
	ticksPerSecond = 100
)

type command func(target *target, flags *flag.FlagSet, arguments []string) (any, error)

var commands = map[string]command{
	"requests": requests,
	"idle":     idle,
	"produce":  produce,
	"live":     live,
	"read":     read,
	"group":    group,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load-client:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 || commands[arguments[0]] == nil {
		return fmt.Errorf("the first argument is a command: requests, idle, produce, live, read or group")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ExitOnError)
	target := &target{}
	flags.Func("servers", "bootstrap servers", func(text string) error {
		target.servers = strings.Split(text, ",")
		return nil
	})
	flags.Func("pids", "the cluster's processes, whose CPU time is measured", func(text string) error {
		target.pids = strings.Split(text, ",")
		return nil
	})
	flags.StringVar(&target.topic, "topic", "", "an existing topic")
	found, err := commands[arguments[0]](target, flags, arguments[1:])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// target is the cluster under load, and a topic of it.
type target struct {
	servers []string
	pids    []string
	topic   string
}

// client returns a client of the cluster. It does not compress: all records of a run have the same value, so that the
// default codec would shrink a batch to little more than one of them.
func (t *target) client(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(t.servers...),
		kgo.ClientID(clientID),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	return kgo.NewClient(append(common, options...)...)
}

// leaders returns the address of the leader of each partition.
func (t *target) leaders() (map[int32]string, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &t.topic
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	addresses := make(map[int32]string)
	for _, broker := range answer.Brokers {
		addresses[broker.NodeID] = net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port))
	}
	leaders := make(map[int32]string)
	for _, partition := range answer.Topics[0].Partitions {
		address, known := addresses[partition.Leader]
		if !known {
			return nil, fmt.Errorf("partition %d of %s has no leader", partition.Partition, t.topic)
		}
		leaders[partition.Partition] = address
	}
	if len(leaders) == 0 {
		return nil, fmt.Errorf("there is no topic %s", t.topic)
	}
	return leaders, nil
}

// inputEnd returns a channel that is closed when the standard input ends.
func inputEnd() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// meter measures the time and the cluster's CPU seconds from its creation on.
type meter struct {
	pids    []string
	started time.Time
	cpu     float64
}

func (t *target) meter() *meter {
	return &meter{t.pids, time.Now(), cpuOf(t.pids)}
}

func (m *meter) read() usage {
	return usage{time.Since(m.started).Seconds(), cpuOf(m.pids) - m.cpu}
}

// usage is what a meter measured, and a part of each command's output.
type usage struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu_s"`
}

// cpuOf returns the CPU seconds of processes, 0 for those that have ended.
func cpuOf(pids []string) float64 {
	ticks := 0
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		// The name of the program, in parentheses, may contain spaces.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] {
			used, _ := strconv.Atoi(field)
			ticks += used
		}
	}
	return float64(ticks) / ticksPerSecond
}

// quantiles are those of some times, in seconds.
type quantiles struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_s"`
	P99   float64 `json:"p99_s"`
	P999  float64 `json:"p999_s"`
	Max   float64 `json:"max_s"`
}

// quantilesOf sorts the times. Without any, all quantiles are 0.
func quantilesOf(times []time.Duration) quantiles {
	if len(times) == 0 {
		return quantiles{}
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return times[min(len(times)-1, int(share*float64(len(times))))].Seconds()
	}
	return quantiles{len(times), at(0.5), at(0.99), at(0.999), at(1)}
}
