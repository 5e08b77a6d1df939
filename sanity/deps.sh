#!/bin/sh
# Installs what the fencing tests need from Debian's archive, and raises Linux's limit of
# inotify instances where it is too low for them. It asks for root
# only when something is missing, and only where it gets it without a password;
# elsewhere it names what is missing and fails.
#
#   sanity/deps.sh           install what is missing
#   sanity/deps.sh --check   only name it
set -eu

# One line each: package, and a program or file that it brings.
needs='
iproute2                 ip
nftables                 nft
openipmi                 ipmi_sim
ipmitool                 ipmitool
fence-agents             fence_ipmilan
qemu-system-x86          qemu-system-x86_64
runc                     runc
containernetworking-plugins  /usr/lib/cni/ptp
e2fsprogs                e2fsck
mount                    losetup
linux-image-cloud-amd64  /boot/vmlinuz-*-cloud-amd64
spin                     spin
gcc                      gcc
'

PATH=$PATH:/usr/sbin:/sbin

present() {
	case $1 in
	/*) ls $1 >/dev/null 2>&1 ;; # may be a pattern
	*) command -v "$1" >/dev/null ;;
	esac
}

# missing prints the packages whose program or file is not there.
missing() {
	echo "$needs" | while read -r package what; do
		test -z "$package" || present "$what" || echo "$package"
	done
}

# Each kubelet of the tests has three inotify instances and each control plane six, and the
# stories at one time are more than the 128 that Linux allows a user.
inotify=/proc/sys/fs/inotify/max_user_instances
instances=512
enough() { ! test -r $inotify || test "$(cat $inotify)" -ge $instances; }

packages=$(missing | tr '\n' ' ')
if test -z "$packages" && enough; then
	exit 0
fi

refuse() {
	echo "missing Debian packages: $packages" >&2
	echo "$1" >&2
	exit 1
}

if test "$(id -u)" = 0; then
	root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	root='sudo -n'
else
	root=none
fi
if ! enough; then
	if test "${1:-}" != --check && test "$root" != none && $root sh -c "echo $instances >$inotify" 2>/dev/null; then
		echo "fs.inotify.max_user_instances is $instances now, until the next boot: what this machine allowed is too little for the kubelets of all stories" >&2
	else
		echo "fs.inotify.max_user_instances is $(cat $inotify) here, too little for the kubelets of all stories: as root, sysctl fs.inotify.max_user_instances=$instances" >&2
	fi
fi
test -n "$packages" || exit 0

test "${1:-}" != --check || refuse "install them, or run make deps"
command -v apt-get >/dev/null || refuse "there is no apt-get here: install what these packages bring by other means"
test "$root" != none || refuse "run as root: apt-get install -y $packages"
$root apt-get update -qq
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
packages=$(missing | tr '\n' ' ')
test -z "$packages" || refuse "apt-get installed them, and their programs are not there"
