package main

import cadvisorapi "github.com/google/cadvisor/info/v1"

// machineInfo is what cadvisor says of a machine. Its package moved in v1.37.
type machineInfo = cadvisorapi.MachineInfo

// MachineInfo is asked without a logger up to v1.36.
func (m *machine) MachineInfo() (*machineInfo, error) { return m.identified(m.Fake.MachineInfo()) }
