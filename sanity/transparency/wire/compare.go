package wire

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// Difference is a fact that is not the same.
type Difference struct {
	What            string
	Direct, Proxied string // empty: not seen
	// Exception names the declared difference that this is; empty: a fault.
	Exception string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: directly %s, through the proxy %s", d.What, orNothing(d.Direct), orNothing(d.Proxied))
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// Outcome is what one property of one method came to.
type Outcome struct {
	Method   Method
	Property string
	// Fits is false where the property means nothing for the method.
	Fits        bool
	Differences []Difference
	// Err is why it could not be compared.
	Err error
}

// Fault says whether anything differs that must not.
func (o Outcome) Fault() bool {
	return o.Err != nil || slices.ContainsFunc(o.Differences, func(d Difference) bool { return d.Exception == "" })
}

const userAgentFact = "driver: metadata user-agent"

// Exceptions are the differences that csi-fencepost declares, in the order in
// which they are judged.
var Exceptions = []struct {
	Name string
	Why  string
	is   func(Method, string, Difference) bool
}{
	{"user-agent", "grpc-go writes its own", func(_ Method, _ string, d Difference) bool {
		return d.What == userAgentFact && strings.Contains(d.Proxied, "grpc-go/")
	}},
	{"field order", "a judged call is decoded and encoded again: no field is lost, their order is grpc-go's", func(m Method, property string, d Difference) bool {
		return m.Judged && property == "field order" && (strings.HasPrefix(d.What, "driver: message ") || strings.HasPrefix(d.What, "caller: message ")) &&
			sameFields(d.Direct, d.Proxied)
	}},
}

// sameFields says of two short messages (see digest) whether they hold the same
// fields in another order.
func sameFields(direct, proxied string) bool {
	a, b := fieldsOf(direct), fieldsOf(proxied)
	return len(a) > 0 && slices.Equal(a, b)
}

// fieldsOf lists the fields of a protobuf message that is given in hexadecimal;
// none if it is no such thing.
func fieldsOf(text string) []string {
	b, err := hex.DecodeString(text)
	if err != nil {
		return nil
	}
	var fields []string
	for len(b) > 0 {
		_, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return nil
		}
		fields = append(fields, string(b[:n]))
		b = b[n:]
	}
	slices.Sort(fields)
	return fields
}

// atOnce and atOnceLarge are how many methods are compared at the same time:
// some properties wait, one is heavy.
const (
	atOnce      = 32
	atOnceLarge = 2
)

// Compare holds the properties of every method, through direct and through
// proxied, both connected to d, against each other, and returns what came of
// each, ordered by method. ctx must not have a deadline: the driver would see it.
func Compare(ctx context.Context, d *Driver, direct, proxied *grpc.ClientConn, properties []Property) []Outcome {
	methods := Methods()
	outcomes := make([]Outcome, len(methods)*len(properties))
	for j, p := range properties {
		places := make(chan struct{}, atOnce)
		if p.Name == largeMessage {
			places = make(chan struct{}, atOnceLarge)
		}
		var running sync.WaitGroup
		for i, m := range methods {
			places <- struct{}{}
			running.Go(func() {
				outcomes[i*len(properties)+j] = compareOne(ctx, d, direct, proxied, m, p)
				<-places
			})
		}
		running.Wait() // large messages and short deadlines do not go together
	}
	return outcomes
}

func compareOne(ctx context.Context, d *Driver, direct, proxied *grpc.ClientConn, m Method, p Property) Outcome {
	o := Outcome{Method: m, Property: p.Name, Fits: p.fits == nil || p.fits(m)}
	if !o.Fits {
		return o
	}
	var want, got Facts
	if want, o.Err = d.observe(ctx, direct, m, p); o.Err != nil {
		o.Err = fmt.Errorf("directly: %w", o.Err)
		return o
	}
	if got, o.Err = d.observe(ctx, proxied, m, p); o.Err != nil {
		o.Err = fmt.Errorf("through the proxy: %w", o.Err)
		return o
	}
	o.Differences = differences(m, p.Name, want, got)
	return o
}

// observe makes one call and returns what both ends saw.
func (d *Driver) observe(ctx context.Context, conn *grpc.ClientConn, m Method, p Property) (Facts, error) {
	// Not a deadline: the driver would see it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(patience, cancel).Stop()
	id := m.Path + " " + p.Name
	s := d.expect(id, func(v *visit) error { return p.driver(m, v) })
	c := &caller{conn: conn, method: m, id: id, facts: Facts{}}
	if err := p.call(context.WithValue(ctx, scriptKey{}, s), c); err != nil {
		return nil, err
	}
	if err := s.over(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.facts)
	maps.Copy(all, c.facts)
	all["driver: calls"] = fmt.Sprint(s.calls)
	return all, nil
}

type scriptKey struct{}

// arrived waits until the driver has the call.
func (c *caller) arrived(ctx context.Context) error {
	return ctx.Value(scriptKey{}).(*script).over()
}

// over waits for the driver to say that something is over.
func (s *script) over() error {
	select {
	case <-s.ended:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the driver did not see the call, or not its end, within %s", patience)
	}
}

func differences(m Method, property string, direct, proxied Facts) []Difference {
	keys := maps.Clone(direct)
	maps.Copy(keys, proxied)
	var all []Difference
	for _, what := range slices.Sorted(maps.Keys(keys)) {
		d := Difference{What: what, Direct: direct[what], Proxied: proxied[what]}
		if d.Direct == d.Proxied || what == userAgentFact && property != "metadata" {
			continue // the user-agent is the connection's; once for each method is enough
		}
		for _, e := range Exceptions {
			if e.is(m, property, d) {
				d.Exception = e.Name
				break
			}
		}
		all = append(all, d)
	}
	return all
}
