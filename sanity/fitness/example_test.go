package fitness_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness"
)

// t stands for the *testing.T of a vendor's own test.
type failing struct{}

func (failing) Fail() { fmt.Println("not fit") }

var t failing

// A vendor's own test: the driver is started as it always is, and its socket and
// two of its nodes are named.
func ExampleTest() {
	dir, err := os.MkdirTemp("", "fitness")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	driver := array.New(array.Options{})
	defer driver.Close()
	for _, node := range []string{"node-1", "node-2"} {
		if err := driver.AddMachine(node); err != nil {
			fmt.Println(err)
		}
	}
	socket := filepath.Join(dir, "csi.sock")
	if err := driver.Serve(context.Background(), socket); err != nil {
		fmt.Println(err)
	}

	config := fitness.NewConfig()
	config.Address, config.NodeIDs = socket, []string{"node-1", "node-2"}
	config.Watch = config.Watch / 100 // this driver does nothing in the background
	report := fitness.Test(t, config)
	fmt.Println(report.Verdict)
	fmt.Print(report.Configuration)
	// Output:
	// fit for takeover
	// apiVersion: csi-fencepost.io/v1alpha1
	// kind: Configuration
	// driver:
	//   unpublishRevokesAccess: false
}
