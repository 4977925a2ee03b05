# Makes a copy of this machine's files in memory, and becomes systemd there, in
# namespaces of its own. Nothing of this machine is started, and nothing is changed.
set -e
work=$1
mount --make-rprivate /
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o lowerdir=/,upperdir="$work/upper",workdir="$work/work" overlay "$work/root"
cd "$work/root"
rm -rf etc/systemd/system/* usr/lib/systemd/system/*.target.wants usr/sbin/policy-rc.d
rm -rf etc/headgate var/lib/headgate var/lib/private/headgate
: >etc/fstab
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd
  mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd,xattr cgroup sys/fs/cgroup/systemd
fi
mount -t tmpfs -o mode=755 tmpfs run
mount --rbind /dev dev
mkdir -p old
pivot_root . old
umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=basic.target
