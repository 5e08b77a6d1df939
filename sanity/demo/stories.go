package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// story is one that can be told.
type story struct {
	name, about string
	// needs are programs that not everybody has, and the packages that bring them.
	needs map[string]string
	play  func(*bed.Run, *bed.Bed) error
	// onRealNodes tells it on real ones; nil: it cannot be told so.
	onRealNodes func(*bed.Run, *bed.Bed) error
}

// real is what a story on real nodes needs beside root, and the packages that bring it.
var real = map[string]string{"runc": "runc", "/usr/lib/cni/ptp": "containernetworking-plugins", "mkfs.ext4": "e2fsprogs", "losetup": "mount", "nsenter": "util-linux", "ip": "iproute2", "nft": "nftables"}

// stories, the one that is told unasked first.
var stories = []story{
	{name: "double-publish", about: "an operator is wrong about a node, and the driver's detach fails", play: doublePublish, onRealNodes: reallyDoublePublish},
	{name: "power-off", about: "the node of 20 databases loses power", needs: map[string]string{"ipmi_sim": "openipmi"}, play: powerOff},
}

// choose finds the story, and what it needs, before minutes are spent on it.
func choose(name string, onRealNodes bool, rest []string) (story, error) {
	if len(rest) > 0 {
		return story{}, fmt.Errorf("%q is not a flag; the demo takes nothing else", rest[0])
	}
	for _, s := range stories {
		if s.name != name {
			continue
		}
		if onRealNodes {
			if s.onRealNodes == nil {
				return story{}, fmt.Errorf("the story %s is not told on real nodes; %s is", name, stories[0].name)
			}
			if os.Geteuid() != 0 {
				return story{}, errors.New("real nodes need root: they mount file systems and run containers")
			}
			s.play, s.needs = s.onRealNodes, real
		}
		for _, program := range slices.Sorted(maps.Keys(s.needs)) {
			if _, err := exec.LookPath(program); err != nil {
				return story{}, fmt.Errorf("the story %s needs the program %s, which is not in PATH (%s): run make deps, or install Debian's package %s",
					name, program, os.Getenv("PATH"), s.needs[program])
			}
		}
		return s, nil
	}
	return story{}, fmt.Errorf("there is no story %q. The stories are:\n%s", name, listStories())
}

func listStories() string {
	var lines []string
	for _, s := range stories {
		lines = append(lines, fmt.Sprintf("  %-15s %s", s.name, s.about))
	}
	return strings.Join(lines, "\n")
}
