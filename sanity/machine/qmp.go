package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// monitor is one connection to QEMU's machine protocol. One command at a time.
type monitor struct {
	conn net.Conn
	in   *json.Decoder
}

// message is what matters of all that QEMU sends: a greeting, an answer or an event.
type message struct {
	Error *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

// dialMonitor connects, and waits until the socket is there.
func dialMonitor(ctx context.Context, path string) (*monitor, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			m := &monitor{conn: conn, in: json.NewDecoder(conn)}
			var greeting message
			if err = m.receive(ctx, &greeting); err == nil {
				err = m.run(ctx, "qmp_capabilities", nil)
			}
			if err != nil {
				conn.Close()
				return nil, err
			}
			return m, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to QEMU: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// refusal is QEMU's own words.
type refusal string

func (r refusal) Error() string { return string(r) }

// refused tells whether QEMU answered, and said no.
func refused(err error) bool { return errors.As(err, new(refusal)) }

// run runs one command. Any error but a refusal ends the use of the connection.
func (m *monitor) run(ctx context.Context, command string, arguments map[string]any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := m.deadline(ctx); err != nil {
		return err
	}
	if _, err := m.conn.Write(append(text, '\n')); err != nil {
		return err
	}
	for {
		var answer message
		if err := m.receive(ctx, &answer); err != nil {
			return err
		}
		switch {
		case answer.Event != "":
		case answer.Error != nil:
			return refusal(answer.Error.Desc)
		default:
			return nil
		}
	}
}

func (m *monitor) receive(ctx context.Context, into *message) error {
	if err := m.deadline(ctx); err != nil {
		return err
	}
	err := m.in.Decode(into)
	if errors.Is(err, io.EOF) {
		return errors.New("the machine is off")
	}
	return err
}

func (m *monitor) deadline(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(30 * time.Second)
	}
	return m.conn.SetDeadline(until)
}
