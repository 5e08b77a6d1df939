#!/bin/sh
# What cannot be tested here: go test's -skip on standard output, with "packages"
# an extended regular expression of packages (after another, so it begins with
# a |); in words, so that nobody takes it for passed, on standard error.
set -eu
here=$(dirname "$0")
skip= packages=
add() { skip=${skip:+$skip|}$1; }

if ! sh "$here/deps.sh" >&2; then
	echo "SKIPPED for want of these packages: the scenarios of failover and of real nodes, and the tests of fence agents, BMCs and virtual machines" >&2
	add '^TestFailover|^TestFenceAgentsKnowTheParameters|^TestReal|^TestARealNode|^TestKubelets|^TestABMCOf'
	packages='|/fence/agent/(program|ipmi)$|/sanity/(bmc|machine|realnode/disk)$'
	if ! command -v spin >/dev/null || ! command -v gcc >/dev/null; then
		echo "SKIPPED for want of spin or gcc: the exploration of the model" >&2
		add '^TestModel'
	fi
fi
if test "$(id -u)" != 0; then
	echo "SKIPPED for want of root: the scenarios of network partitions and of real nodes" >&2
	add '^TestPartition$|^TestFailoverPartition$|^TestAPartitioned|^TestANetworkGoes|^TestReal|^TestARealNode|^TestKubelets|^TestOnOneMachine|^TestOnTwoMachines|^TestADiskThatHangs|^TestWhatIsCutOff'
fi
if test "${1:-}" = packages; then
	printf '%s' "$packages"
else
	printf '%s' "$skip"
fi
