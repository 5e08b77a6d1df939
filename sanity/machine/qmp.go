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

// message is all that QEMU sends: a greeting, an answer or an event.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// dialMonitor connects, and waits until the socket is there.
func dialMonitor(ctx context.Context, path string) (*monitor, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			m := &monitor{conn: conn, in: json.NewDecoder(conn)}
			var greeting message
			if err := m.receive(ctx, &greeting); err != nil {
				return nil, err
			}
			_, err = m.run(ctx, "qmp_capabilities", nil)
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to QEMU: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run runs one command. QEMU's own words are in the error.
func (m *monitor) run(ctx context.Context, command string, arguments map[string]any) (json.RawMessage, error) {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if err := m.deadline(ctx); err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(append(text, '\n')); err != nil {
		return nil, fmt.Errorf("QEMU %s: %w", command, err)
	}
	for {
		var answer message
		if err := m.receive(ctx, &answer); err != nil {
			return nil, fmt.Errorf("QEMU %s: %w", command, err)
		}
		switch {
		case answer.Event != "":
		case answer.Error != nil:
			return nil, errors.New(answer.Error.Desc)
		default:
			return answer.Return, nil
		}
	}
}

// await waits for an event about a device.
func (m *monitor) await(ctx context.Context, event, device string) error {
	for {
		var said message
		if err := m.receive(ctx, &said); err != nil {
			return fmt.Errorf("wait for QEMU's %s of %s: %w", event, device, err)
		}
		var data struct{ Device string }
		if said.Event == event && json.Unmarshal(said.Data, &data) == nil && data.Device == device {
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
