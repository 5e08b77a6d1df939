package main

import cadvisorapi "github.com/google/cadvisor/lib/model"

// machineInfo is what cadvisor says of a machine. Its package moved in v1.37.
type machineInfo = cadvisorapi.MachineInfo
