// Finds processes that watch files of a mount.
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/temporary_directory.h"
#include "layers/sandbox_mounts.h"

using namespace moorage;
using layers::marks_any;
using layers::watches_any;
using test::TemporaryDirectory;

TEST_CASE("marks are found by the device of the watched file") {
  const std::string inotify =
      "pos:\t0\nflags:\t02004000\nmnt_id:\t15\nino:\t2070\n"
      "inotify wd:2 ino:1b sdev:2f mask:fff ignored_mask:0 fhandle-bytes:8 fhandle-type:1 "
      "f_handle:1b\n"
      "inotify wd:1 ino:1a sdev:10300003 mask:fff ignored_mask:0\n";
  CHECK(marks_any(inotify, {makedev(0, 0x2f)}));
  CHECK(marks_any(inotify, {makedev(7, 7), makedev(0x103, 3)}));
  CHECK_FALSE(marks_any(inotify, {makedev(0, 0x2e)}));
  CHECK(marks_any("fanotify ino:2a sdev:123456 mflags:0 mask:3b ignored_mask:0\n",
                  {makedev(1, 0x23456)}));
  CHECK(marks_any("fanotify mnt_id:12 mflags:0 mask:1 ignored_mask:0\n", {makedev(0, 1)}));
  CHECK_FALSE(marks_any("eventfd-count: 0\nsdev:2f\n", {makedev(0, 0x2f)}));
  CHECK_FALSE(marks_any("", {makedev(0, 0x2f)}));
}

TEST_CASE("a process that watches a directory is found until it stops") {
  TemporaryDirectory directory;
  struct stat here {};
  base::check(stat(directory.path().c_str(), &here), "stat");
  struct stat proc {};
  base::check(stat("/proc", &proc), "stat");
  const base::Fd watches(base::check(inotify_init1(IN_CLOEXEC), "inotify"));
  CHECK_FALSE(watches_any(getpid(), {here.st_dev}));
  base::check(inotify_add_watch(watches.get(), "/proc", IN_CREATE), "watch");
  CHECK(watches_any(getpid(), {proc.st_dev}));
  CHECK_FALSE(watches_any(getpid(), {here.st_dev}));
  const int watch =
      base::check(inotify_add_watch(watches.get(), directory.path().c_str(), IN_CREATE), "watch");
  CHECK(watches_any(getpid(), {here.st_dev}));
  inotify_rm_watch(watches.get(), watch);
  CHECK_FALSE(watches_any(getpid(), {here.st_dev}));
}
