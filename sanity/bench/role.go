package main

import (
	"context"
	"fmt"
)

// The roles that this program plays in a process of its own. It starts itself
// again with one of them as the first argument.
const (
	roleDriver = "driver" // SOCKET NAME
	roleSplice = "splice" // LISTEN TARGET
)

// runRole plays a role, if args name one, until ctx ends.
func runRole(ctx context.Context, args []string) (isRole bool, err error) {
	if len(args) == 0 || args[0] != roleDriver && args[0] != roleSplice {
		return false, nil
	}
	if len(args) != 3 {
		return true, fmt.Errorf("%s takes two arguments, got %d", args[0], len(args)-1)
	}
	if args[0] == roleDriver {
		return true, serveDriver(ctx, args[1], args[2])
	}
	return true, serveSplice(ctx, args[1], args[2])
}
