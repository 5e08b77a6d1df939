package contract

import "context"

// State is what a platform says of a machine's power. The zero State proves nothing.
type State int

const (
	// Neither on nor off: the machine is on its way, or its memory is kept, or who
	// answers may not know.
	Neither State = iota
	// On means that it runs.
	On
	// Off means that it has no power, and that nothing is kept from which it could go on.
	Off
)

// Machine is what a platform says of one machine.
type Machine struct {
	// ID is the platform's own, under which it knows no other machine. It is one word
	// without blanks, for it is printed.
	ID string
	// UUID is the system UUID that the machine's firmware has; empty: the platform does
	// not say.
	UUID string
	// Name for a person; it may be anything.
	Name  string
	State State
	// Says are the platform's own words for State, for messages.
	Says string
	// Handle is the Platform's own.
	Handle any
}

// Platform is a way to a platform, with credentials and scope. Each call ends with its ctx.
type Platform interface {
	// Find reads the machine that plug names in the agent's own way. A machine that is not
	// found is an error, which says what was looked for and where: it may be a right, a
	// region or a form of the name that is missing.
	Find(ctx context.Context, plug string) (*Machine, error)
	// Off cuts the power at once, without asking the operating system. It returns once
	// the platform has taken the command, or has done it where it tells how that ended. With
	// an error it may have been done.
	Off(ctx context.Context, m *Machine) error
	// On gives power.
	On(ctx context.Context, m *Machine) error
	// List are the machines that the credentials show.
	List(ctx context.Context) ([]*Machine, error)
}

// Session is a Platform at which something has to be ended: the last call to it, with a ctx that
// does not end.
type Session interface {
	Close(ctx context.Context)
}

// Agent is one way to fence.
type Agent struct {
	// Name is what comes after fence_fencepost_, and the subcommand.
	Name string
	// Short is a line for people, Long what its states mean.
	Short, Long string
	// Parameters beside those that every agent has.
	Parameters []Parameter
	// Plugless tells that the parameters name the machine; there is no plug.
	Plugless bool
	// Open reads credentials and builds the way to the platform. It may ask the platform.
	Open func(ctx context.Context, v Values) (Platform, error)
}
