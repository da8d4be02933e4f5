// Errands of moorage-link, with a shell script in its place.
#include "backends/remote/link_program.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "thrown_code.h"

using namespace moorage;
using namespace moorage::backends;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLong{60'000};

class FakeProgram {
 public:
  explicit FakeProgram(const std::string& script) {
    const char* base = getenv("TMPDIR");
    directory_ = std::string(base ? base : "/tmp") + "/moorage-errand-XXXXXX";
    base::check(mkdtemp(directory_.data()) ? 0 : -1, directory_);
    base::write_file(path(), "#!/bin/sh\n" + script + "\n", 0700);
  }
  ~FakeProgram() { base::remove_tree(directory_); }
  FakeProgram(FakeProgram&&) = delete;
  std::string path() const { return directory_ + "/link"; }

 private:
  std::string directory_;
};

base::LinkConfig config() {
  base::LinkConfig config;
  config.name = "moorage-s-sb_7";
  config.driver = "ssh";
  config.place = "build1";
  config.settings = "{\"host\":\"a\"}";
  return config;
}

Error failure(const std::string& script, milliseconds deadline = kLong) {
  const FakeProgram program(script);
  try {
    run_link(program.path(), {"list"}, config(), deadline);
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(Code::internal, "");
}

TEST_CASE("a salvage says whether the machine has the sandbox") {
  CHECK(parse_found("{\"found\":true,\"packs\":1}\n"));
  CHECK_FALSE(parse_found("{\"found\":false,\"packs\":0}"));
  for (const std::string text : {"", "{}", "[true]", "{\"found\":1}", "{\"found\":true"})
    CHECK_THROWS_AS(parse_found(text), Error);
}

}  // namespace

TEST_CASE("the program gets its command and the configuration, and nothing of our environment") {
  setenv("MOORAGE_OF_THE_TEST", "leaks", 1);
  const FakeProgram program("echo $1 $2 $3; cat $3; echo; echo [$MOORAGE_OF_THE_TEST]");
  const std::string output = run_link(program.path(), {"remove"}, config(), kLong);
  CHECK(output.starts_with("remove --config /dev/stdin\n{"));
  CHECK(output.find("\"name\":\"moorage-s-sb_7\"") != std::string::npos);
  CHECK(output.ends_with("\n[]\n"));
  unsetenv("MOORAGE_OF_THE_TEST");
}

TEST_CASE(
    "what the program says becomes an error in words, bounded and without control characters") {
  const Error told = failure("echo 'no route to a' >&2; echo 'hint: check the cable' >&2; exit 1");
  CHECK(told.code() == Code::unavailable);
  CHECK(told.message() == "no route to a");
  CHECK(told.hint() == "check the cable");
  CHECK(failure("exit 3").message() == "moorage-link list ended with exit code 3");
  CHECK(failure("kill -9 $$").message() == "moorage-link list ended with signal 9");
  const Error hostile =
      failure("printf '\\033[2J' >&2; head -c 20000 /dev/zero | tr '\\0' x >&2; exit 1");
  CHECK(hostile.message().size() < 1100);
  CHECK(hostile.message().find('\x1b') == std::string::npos);
}

TEST_CASE("a program that hangs or prints without end is ended, and the machine is named") {
  const Error late = failure("sleep 1000", milliseconds(1000));
  CHECK(late.code() == Code::deadline_exceeded);
  CHECK(late.message() == "build1 did not answer within 1 s");
  CHECK(failure("exec cat /dev/zero").code() == Code::resource_exhausted);
}

TEST_CASE("only names of this store's sandboxes are taken from a list") {
  const auto line = [](const std::string& name) {
    return "{\"id\":\"1\",\"sandbox\":\"" + name + "\"}\n";
  };
  CHECK(parse_listed(line("moorage-s-sb_9") + line("moorage-s-sb_7") + line("moorage-s-sb_7"),
                     "moorage-s-") == std::vector<std::string>{"moorage-s-sb_7", "moorage-s-sb_9"});
  for (const std::string& other :
       {line("moorage-t-sb_7"), line("moorage-s-"), line("moorage-s-sb_7/../x"),
        line("moorage-s-all"), line(""), std::string("{\"sandbox\":7}\n"),
        std::string("[[[[[[[[\n"), std::string("\n\n"), std::string("moorage-s-sb_7\n")}) {
    CAPTURE(other);
    CHECK(parse_listed(other, "moorage-s-").empty());
  }
  std::string many;
  for (int n = 1; n <= 10'001; ++n) many += line("moorage-s-sb_" + std::to_string(n));
  CHECK(code_thrown_by([&] { parse_listed(many, "moorage-s-"); }) == Code::corrupted);
}
