#include "base/error.h"

#include <catch2/catch.hpp>
#include <cerrno>

#include "temporary_directory.h"

using namespace moorage;
using base::Code;
using base::Error;

TEST_CASE("every code keeps its name on the wire") {
  for (int i = 0; i <= static_cast<int>(Code::internal); ++i) {
    const auto code = static_cast<Code>(i);
    CHECK(base::code_from_name(base::code_name(code)) == code);
  }
  CHECK(base::code_name(Code::unknown_outcome) == "unknown_outcome");
  CHECK(base::code_from_name("a_code_of_next_year") == Code::internal);
}

TEST_CASE("context is prepended and the hint is kept") {
  Error error(Code::conflict, "busy", "wait");
  CHECK(std::string(error.add_context("start").add_context("ws_1").what()) == "ws_1: start: busy");
  CHECK(error.hint() == "wait");
}

TEST_CASE("errno decides the code") {
  const std::pair<int, Code> expected[] = {
      {ENOSPC, Code::resource_exhausted}, {EDQUOT, Code::resource_exhausted},
      {ENOMEM, Code::resource_exhausted}, {EMFILE, Code::resource_exhausted},
      {ENOENT, Code::not_found},          {EACCES, Code::permission_denied},
      {EPERM, Code::permission_denied},   {ENOSYS, Code::unsupported},
      {EOPNOTSUPP, Code::unsupported},    {EIO, Code::io}};
  for (auto [number, code] : expected) {
    try {
      base::throw_errno("read it", number);
    } catch (const Error& error) {
      CHECK(error.code() == code);
      CHECK(error.message().starts_with("cannot read it: "));
      CHECK(error.hint().starts_with("the disk is full") == (number == ENOSPC || number == EDQUOT));
    }
  }
  errno = ENOENT;
  CHECK(test::code_thrown_by([] { base::check(-1, "x"); }) == "not_found");
  CHECK(base::check(7, "x") == 7);
}

TEST_CASE("a used-up kernel allowance is not reported as a full disk") {
  for (int number : {ENOSPC, EMFILE}) {
    try {
      base::throw_allowance("watch it", "fs.inotify.max_user_watches", number);
    } catch (const Error& error) {
      CHECK(error.code() == Code::resource_exhausted);
      CHECK(error.message() == "cannot watch it: kernel limit reached");
      CHECK(error.hint() == "end processes that use it up, or raise fs.inotify.max_user_watches");
    }
  }
  errno = EPERM;
  try {
    base::check_allowance(-1, "unshare", "user.max_mnt_namespaces");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == Code::permission_denied);
  }
}
