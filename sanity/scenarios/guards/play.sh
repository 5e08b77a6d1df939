#!/bin/sh
# Plays a story without its guard: play.sh STORY, where guards/STORY.patch takes
# the guard out. The sources are a copy of this checkout, in a temporary folder.
#
# Exit code 0: FAILED AS IT SHOULD, for the reason that the patch expects.
# 1: PASSED WITHOUT ITS GUARD. 2: not played, or it failed for another reason.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
patch=$here/${1:-}.patch
if test $# != 1 || ! test -f "$patch"; then
	echo "usage: $0 STORY, one of:" $(cd "$here" && ls -- *.patch | sed 's/\.patch$//') >&2
	exit 2
fi
# A second guard of a story is named after a dot.
story=${1%%.*}
expected=$(sed -n 's/^Expect: //p' "$patch")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 2' INT TERM

echo "Guard: $(sed -n 's/^Guard: //p' "$patch")"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null) | tar -x -C "$copy"
cd "$copy"
git init -q . # else git apply asks a repository above
git apply "$patch"
go test -count=1 -v -timeout 30m -run "^Test(Scenario|Partition|Failover|FailoverPartition)\$/^$story\$" ./sanity/scenarios >"$copy/log" 2>&1 || true

if grep -q -- "--- PASS: Test[A-Za-z]*/$story " "$copy/log"; then
	echo "PASSED WITHOUT ITS GUARD: $story"
	exit 1
fi
if ! grep -q -- "--- FAIL: Test[A-Za-z]*/$story " "$copy/log"; then
	tail -n 30 "$copy/log"
	echo "NOT PLAYED: $story"
	exit 2
fi
if ! grep -E -m 3 -- "$expected" "$copy/log"; then
	cat "$copy/log"
	echo "FAILED FOR ANOTHER REASON: $story, expected: $expected"
	exit 2
fi
echo "FAILED AS IT SHOULD: $story"
