package main

import (
	cadvisorapi "github.com/google/cadvisor/lib/model"
	"k8s.io/klog/v2"
)

// machineInfo is what cadvisor says of a machine. Its package moved in v1.37.
type machineInfo = cadvisorapi.MachineInfo

// MachineInfo is asked with a logger from v1.37 on.
func (m *machine) MachineInfo(logger klog.Logger) (*machineInfo, error) {
	return m.identified(m.Fake.MachineInfo(logger))
}
