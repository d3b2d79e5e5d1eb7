package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// connected is the output of the idle command, once when all connections are open and once more at the end.
type connected struct {
	Connections int `json:"connections"`
	// Broken is the number of connections that the broker has closed.
	Broken int `json:"broken"`
}

// idle opens connections, each of which asks for the API versions as all clients do and is silent afterwards. It keeps
// them until its standard input ends. Go has raised the limit of open files to the hard limit.
func idle(target *target, flags *flag.FlagSet, arguments []string) (any, error) {
	count := flags.Int("connections", 1000, "the number of connections")
	most := flags.Duration("most", 15*time.Minute, "the time after which the connections are closed in any case")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	open := make([]net.Conn, 0, *count)
	defer func() {
		for _, connection := range open {
			connection.Close()
		}
	}()
	for i := range *count {
		connection, err := greet(target.servers[i%len(target.servers)])
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
		open = append(open, connection)
	}
	fmt.Printf("{\"connections\": %d, \"broken\": 0}\n", len(open))
	select {
	case <-inputEnd():
	case <-time.After(*most):
	}
	broken := 0
	for _, connection := range open {
		if isBroken(connection) {
			broken++
		}
	}
	return &connected{len(open), broken}, nil
}

// greet opens a connection, asks for the API versions, and reads the answer.
func greet(address string) (net.Conn, error) {
	connection, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	if err := exchangeVersions(connection); err != nil {
		connection.Close()
		return nil, err
	}
	return connection, nil
}

func exchangeVersions(connection net.Conn) error {
	if err := connection.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	request := kmsg.NewPtrApiVersionsRequest()
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	if _, err := connection.Write(formatter.AppendRequest(nil, request, 1)); err != nil {
		return err
	}
	// A small buffer: thousands of them are open. Nothing follows the answer, so that none of its bytes is lost.
	reader := bufio.NewReaderSize(connection, 16)
	var head [4]byte
	if _, err := io.ReadFull(reader, head[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, reader, int64(binary.BigEndian.Uint32(head[:])))
	return err
}

// isBroken reports whether the other side has closed a connection on which it owes nothing.
func isBroken(connection net.Conn) bool {
	_ = connection.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := connection.Read(make([]byte, 1))
	failed, isNetwork := err.(net.Error)
	return !isNetwork || !failed.Timeout()
}
