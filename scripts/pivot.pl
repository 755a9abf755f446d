#!/usr/bin/perl
# pivot.pl COMMAND...: runs COMMAND in a mount namespace whose root is this process's root directory. For a chroot, as root; perl, since a
# bare Debian has no other language that calls the kernel.
#
# pivot_root() refuses a root directory that is no mount point, and in a chroot `/` does not lead to a mount that was made over it. A process
# that joins its own mount namespace once more gets the namespace's root, out of the chroot; there the directory becomes a mount, and the root.
use strict;
use warnings;
use Cwd;

my ($BIND_REC, $PRIVATE_REC, $NEWNS, $DETACH) = (0x5000, 0x44000, 0x20000, 2);
my %numbers = (x86_64 => { mount => 165, unshare => 272, setns => 308, pivot_root => 155, umount2 => 166 },
	aarch64 => { mount => 40, unshare => 97, setns => 268, pivot_root => 41, umount2 => 39 });
chomp(my $machine = `uname -m`);
my $call = $numbers{$machine} or die "$0: no system calls are known for $machine\n";

sub ask { # ask NAME, ARGUMENTS...: strings are copied, since the kernel wants a buffer
	my ($name, @args) = @_;
	my @own = map { "$_" =~ /^\d+$/ ? $_ + 0 : "$_\0" } @args;
	syscall($call->{$name}, @own) == 0 or die "$0: $name: $!\n";
}

my $back = getcwd();
opendir(my $root, "/") or die "$0: /: $!\n";
ask("unshare", $NEWNS);
open(my $own, "<", "/proc/self/ns/mnt") or die "$0: /proc/self/ns/mnt: $!\n";
ask("setns", fileno($own), $NEWNS);
ask("mount", "none", "/", 0, $PRIVATE_REC, 0);
chdir($root) or die "$0: fchdir: $!\n";
my $path = getcwd();
ask("mount", $path, $path, 0, $BIND_REC, 0);
chdir($path) or die "$0: $path: $!\n";
ask("pivot_root", ".", ".");
ask("umount2", ".", $DETACH);
chdir("/") && chdir($back) or die "$0: $back: $!\n";
exec(@ARGV) or die "$0: $ARGV[0]: $!\n";
