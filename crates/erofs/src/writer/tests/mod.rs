//! The writer, judged by others: the kernel mounts every EROFS file, `fsck.erofs` accepts it, and the tree is the one that was put in.
//! Needs root,
//! a kernel that mounts EROFS files (Linux 6.12 and later), and Debian's erofs-utils: where one is missing, the tests fail and say so.

mod elsewhere;
mod faults;
mod memory;
mod model;
mod mounted;
mod patching;
mod property;
mod shapes;
