package simulate

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// Setup is what the world of one schedule is like. It is one line of a script.
type Setup struct {
	Nodes, Volumes, Replicas int
	// Agents has fence agents cover every node.
	Agents bool
	// Cloud makes them a cloud, which knows a machine by its provider ID alone.
	Cloud bool
	// Revokes has an unpublish take the access from a client at once, and the configuration say so.
	// Otherwise a client that has it mounted holds on.
	Revokes bool
	// Single is what the driver does with a publish elsewhere.
	Single Single
	// Lists is how truthfully the driver lists published nodes.
	Lists Lists
	// NamedIDs has the driver's node ID be the node's name, so that a new machine has the node ID of
	// the one that it replaced.
	NamedIDs bool
	// Whole plays the whole program, as it is deployed, over gRPC and HTTP (tier 2).
	Whole bool
	// Spares has a refused call that is repeated judged anew only when csi-fencepost has found that
	// something has changed (tier 2; deployed, it spares those beyond 16 at a time).
	Spares bool
	// Lies has operators also say untrue things.
	Lies bool
	// Wide is the wide world, in which there is more (wide.go); of tier 1 alone.
	Wide bool
	// Twins is what machines of the wide world have in common, for they are of one
	// template: system (the system UUID), boot (boot IDs are counts, as those of Windows
	// are), id (n2 has the node ID of n1). Several with commas between them.
	Twins string
	// ByList has the driver of the wide world without ControllerGetVolume, so that it lists where
	// all volumes are (ListVolumes). SlowList has each list take slowList from the start.
	ByList, SlowList bool
	// Neighbour puts another driver on every node of the wide world (wide_neighbour.go).
	Neighbour bool
	// Versions has every other process be of the next version (wide_versions.go).
	Versions bool
	// Skew is how far clocks are ahead from the start: n1:3s,api-server:-213.3s.
	Skew string
}

// Single is what a driver does with a publish of a volume that is published
// elsewhere.
type Single string

const (
	Allows  Single = "allows"  // attaches it twice
	Refuses Single = "refuses" // FAILED_PRECONDITION
	Moves   Single = "moves"   // takes it from the other node without a word
)

// Lists is how a driver lists the nodes that a volume is published to.
type Lists string

const (
	Truthfully Lists = "truthfully"
	Nothing    Lists = "nothing"  // it has not the capability
	TooMany    Lists = "too-many" // every node that ever had it
	Stale      Lists = "stale"    // as it was one change ago
)

// DefaultSetup is what the setup line of a script leaves out.
func DefaultSetup() Setup {
	return Setup{Nodes: 3, Volumes: 1, Replicas: 1, Single: Allows, Lists: Nothing}
}

// RandomSetup draws one.
func RandomSetup(r *rand.Rand) Setup {
	s := DefaultSetup()
	s.Replicas = 1 + r.IntN(3)
	if r.IntN(8) == 0 {
		s.Volumes = 2
	}
	s.Agents = r.IntN(2) == 0
	s.Revokes = r.IntN(4) == 0
	s.Single = [...]Single{Allows, Allows, Refuses, Moves}[r.IntN(4)]
	s.Lists = [...]Lists{Truthfully, Nothing, Nothing, TooMany, Stale}[r.IntN(5)]
	s.NamedIDs = r.IntN(5) == 0
	s.Lies = r.IntN(4) == 0
	return s
}

// seldom are the flags that String says only where they are set.
var seldom = []string{"cloud", "spares", "wide", "by-list", "slow-list", "neighbour", "versions"}

// flag is what is true or false under that key of the setup line; nil: nothing is.
func (s *Setup) flag(key string) *bool {
	return map[string]*bool{
		"agents": &s.Agents, "revokes": &s.Revokes, "named-ids": &s.NamedIDs, "lies": &s.Lies, "whole": &s.Whole,
		"cloud": &s.Cloud, "spares": &s.Spares, "wide": &s.Wide, "by-list": &s.ByList, "slow-list": &s.SlowList,
		"neighbour": &s.Neighbour, "versions": &s.Versions,
	}[key]
}

func (s Setup) String() string {
	text := fmt.Sprintf("setup nodes=%d volumes=%d replicas=%d agents=%t revokes=%t single=%s lists=%s named-ids=%t lies=%t whole=%t",
		s.Nodes, s.Volumes, s.Replicas, s.Agents, s.Revokes, s.Single, s.Lists, s.NamedIDs, s.Lies, s.Whole)
	for _, key := range seldom {
		if *s.flag(key) {
			text += " " + key + "=true"
		}
	}
	if s.Twins != "" {
		text += " twins=" + s.Twins
	}
	if s.Skew != "" {
		text += " skew=" + s.Skew
	}
	return text
}

// parseSetup reads what String wrote; what is left out is as in DefaultSetup.
func parseSetup(words []string) (Setup, error) {
	s := DefaultSetup()
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return s, fmt.Errorf("%q is not key=value", word)
		}
		var err error
		switch key {
		case "nodes":
			s.Nodes, err = strconv.Atoi(value)
		case "volumes":
			s.Volumes, err = strconv.Atoi(value)
		case "replicas":
			s.Replicas, err = strconv.Atoi(value)
		case "single":
			s.Single = Single(value)
		case "lists":
			s.Lists = Lists(value)
		case "twins":
			s.Twins = value
		case "skew":
			s.Skew = value
			_, err = s.skews()
		default:
			if flag := s.flag(key); flag != nil {
				*flag, err = strconv.ParseBool(value)
			} else {
				err = fmt.Errorf("unknown")
			}
		}
		if err != nil {
			return s, fmt.Errorf("setup: %s: %w", word, err)
		}
	}
	if s.Nodes < 2 || s.Nodes > 5 || s.Volumes < 1 || s.Volumes > 3 || s.Replicas < 1 || s.Replicas > 3 {
		return s, fmt.Errorf("setup: 2 to 5 nodes, 1 to 3 volumes and replicas, not %d, %d, %d", s.Nodes, s.Volumes, s.Replicas)
	}
	if s.Wide && s.Whole {
		return s, fmt.Errorf("setup: the wide world is of tier 1 alone")
	}
	return s, nil
}

const (
	// DriverName of the modelled driver, and ClusterUID of the modelled cluster.
	DriverName = "disk.example.org"
	ClusterUID = "11111111-1111-1111-1111-111111111111"

	suspectAfter = 15 * time.Second // the configuration's default
	agentTimeout = 5 * time.Second
	// callTimeout is external-attacher's --timeout.
	callTimeout = 15 * time.Second
	// orphanLife bounds how long a call whose process is gone may still be under
	// way in the driver.
	orphanLife = time.Minute
	// beatEvery is how long a heartbeat of the processes of tier 1 may be in
	// coming: the longest gap that liveness does not take for a suspension.
	beatEvery = 5 * time.Second
	// notReadyAfter is node-monitor-grace-period, forceDetachAfter the
	// attach-detach controller's patience.
	notReadyAfter    = 50 * time.Second
	forceDetachAfter = 6 * time.Minute
)

// Configuration that the sidecars of this world run with.
func (s Setup) Configuration() *config.Configuration {
	c := config.Default()
	c.Evidence.NetworkFence = false // the modelled driver has no csi-addons
	c.Driver.UnpublishRevokesAccess = s.Revokes
	c.Fencing.MaxUnhealthy = 100
	if s.Whole && s.Agents {
		c.Fencing.FenceAfter.Duration = 50 * time.Second
		c.Failover.Enabled = true
	}
	return c
}
