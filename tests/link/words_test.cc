#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "link/drivers/remote_shell.h"
#include "link/drivers/ssh_child.h"
#include "link/http_head.h"
#include "link/machine.h"
#include "link/provider_key.h"
#include "link/retry.h"
#include "thrown_code.h"

using namespace moorage;
using std::chrono::milliseconds;

TEST_CASE("A failure of ssh is reported in words, with what to do") {
  const link::SshTarget target{"spare", "me@spare", ""};
  const auto code = [&](int exit_code, std::string_view words) {
    const auto error = link::ssh_failure(target, exit_code, words);
    REQUIRE(error);
    CHECK(error->message().find("spare") != std::string::npos);
    return error->code();
  };
  CHECK_FALSE(link::ssh_failure(target, 0, ""));
  CHECK(code(255, "No ED25519 host key is known for x.\nHost key verification failed.\n") ==
        Code::permission_denied);
  CHECK(code(255, "me@spare: Permission denied (publickey).\n") == Code::permission_denied);
  CHECK(code(255, "ssh: connect to host x port 22: No route to host\n") == Code::unavailable);
  CHECK(code(255, "ssh: Could not resolve hostname x: Name or service not known\n") ==
        Code::unavailable);
  CHECK(code(255, "") == Code::unavailable);
  CHECK(code(127, "sh: exec: /x: not found\n") == Code::not_found);
  CHECK(code(126, "sh: /x: Permission denied\n") == Code::unsupported);
  const auto hostile = link::ssh_failure(target, 1, std::string(9000, '\x1b'));
  REQUIRE(hostile);
  CHECK(hostile->message().size() < 600);
  CHECK(hostile->message().find('\x1b') == std::string::npos);
}

TEST_CASE("A word stays one word for the remote shell") {
  CHECK(link::shell_quoted("plain") == "'plain'");
  CHECK(link::shell_quoted("it's; rm -rf $HOME `x`\n") == "'it'\\''s; rm -rf $HOME `x`\n'");
  CHECK(link::shell_quoted("") == "''");
  CHECK(code_thrown_by([] {
          link::SshChild({"x", "-oProxyCommand=touch /x", ""}, "true");
        }) == Code::invalid_argument);
}

TEST_CASE("Retry-After is seconds or a date, and nothing else") {
  CHECK(link::parse_retry_after("3", 0) == milliseconds(3000));
  CHECK(link::parse_retry_after("99999999", 0) == milliseconds(3'600'000));
  CHECK(link::parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1445412470) ==
        milliseconds(10'000));
  CHECK(link::parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1545412470) == milliseconds(0));
  for (const char* text : {"", "-1", "soon", "3s", "Wed, 21 Oct", "1e9"})
    CHECK_FALSE(link::parse_retry_after(text, 0));
}

TEST_CASE("A retry never begins after the deadline") {
  link::Retry retry(std::chrono::steady_clock::now() + milliseconds(150));
  const Error failure(Code::unavailable, "busy");
  CHECK(code_thrown_by([&] { retry.wait(failure, milliseconds(60'000)); }) == Code::unavailable);
  CHECK(code_thrown_by([&] {
          for (int i = 0; i < 10; ++i) retry.wait(failure);
        }) == Code::unavailable);
}

TEST_CASE("Start goes out with the spool's header, without what belongs to this host") {
  const std::string text =
      "POST /process.Process/Start HTTP/1.1\r\nHost: moorage\r\nMoorage-Journal: 1\r\n"
      "Moorage-Kill-Fd: 1\r\nMoorage-Tag: ex_5\r\nMoorage-Journal-Room: 77\r\n"
      "Content-Length: 3\r\n\r\nabc";
  for (size_t size = 0; size < text.size() - 3; ++size)
    REQUIRE_FALSE(link::parse_http_head(std::string_view(text).substr(0, size)));
  const auto head = link::parse_http_head(text);
  REQUIRE(head);
  CHECK(head->method == "POST");
  CHECK(head->path == "/process.Process/Start");
  CHECK(head->header("moorage-tag") == "ex_5");
  CHECK(head->number("content-length") == 3);
  CHECK(text.substr(head->bytes) == "abc");
  const std::string out = link::head_for_spool(*head);
  const auto again = link::parse_http_head(out);
  REQUIRE(again);
  CHECK(again->bytes == out.size());
  CHECK(again->header("moorage-spool") == "1");
  CHECK(again->number("moorage-journal-room") == 77);
  CHECK(again->header("moorage-journal").empty());
  CHECK(again->header("moorage-kill-fd").empty());
  CHECK(code_thrown_by([] { link::parse_http_head("hello\r\n\r\n"); }) == Code::invalid_argument);
}

TEST_CASE("A listed machine is one line, whatever its provider says") {
  link::Machine machine{
      .id = "i\n1", .state = link::MachineState::paused, .labels = {}, .directory = ""};
  CHECK(link::machine_text(machine) ==
        R"({"id":"i\n1","sandbox":"","generation":"","state":"paused"})");
  machine.labels = {
      {link::kSandboxLabel, "m-s-sb_7"}, {link::kGenerationLabel, "4"}, {"other", "x"}};
  CHECK(link::machine_text(machine) ==
        R"({"id":"i\n1","sandbox":"m-s-sb_7","generation":"4","state":"paused"})");
}

using Source = base::LinkKey::Source;

TEST_CASE("A key that others may read is refused, and never shown") {
  std::string directory = "/tmp/moorage-key-XXXXXX";
  base::check(mkdtemp(directory.data()) ? 0 : -1, directory);
  const std::string file = directory + "/key";
  const auto key_of = [&](const std::string& text, mode_t mode) {
    base::write_file(file, text, mode);
    return link::read_key({.source = Source::file, .place = file});
  };
  CHECK(key_of("secret\n", 0600) == "secret");
  CHECK(key_of("se cret\r\n", 0400) == "se cret");
  for (const mode_t mode : {0640U, 0604U}) {
    try {
      key_of("secret\n", mode);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == Code::permission_denied);
      CHECK(std::string(error.what()).find("secret") == std::string::npos);
    }
  }
  CHECK(code_thrown_by([] {
          link::read_key({.source = Source::file, .place = "/nonexistent/key"});
        }) == Code::not_found);
  CHECK(link::read_provider_key(base::LinkConfig{}).empty());
  base::remove_tree(directory);
}

TEST_CASE(
    "A key comes through a pipe, or the reason why there is none, without its command's words") {
  std::string file = "/tmp/moorage-key-XXXXXX";
  const base::Fd made(base::check(mkstemp(file.data()), file));
  const auto received = [&file](const base::LinkKey& key) {
    base::LinkConfig config;
    config.key = file;
    base::write_file(file, base::link_key_text(key));
    base::Pipe pipe = base::make_pipe();
    link::send_key(pipe.write_end.get(), config);
    pipe.write_end.reset();
    return link::receive_key(pipe.read_end.get());
  };
  const auto command = [](const std::string& text) {
    return base::LinkKey{.source = Source::command, .place = text, .credential = "rented"};
  };
  CHECK(received(command("printf 'a \"key\"\n'")) == "a \"key\"");
  for (const char* fails : {"echo secret; echo secret >&2; exit 3", "echo secret; kill -9 $$"}) {
    try {
      received(command(fails));
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == Code::unavailable);
      CHECK(error.message().find("rented") != std::string::npos);
      CHECK(error.message().find("secret") == std::string::npos);
      CHECK(error.hint() == "moorage credential test rented");
    }
  }
  CHECK(code_thrown_by([&] { received(command("true")); }) == Code::permission_denied);
  CHECK(code_thrown_by([&] { received(command("yes")); }) == Code::unavailable);
  CHECK(code_thrown_by([&] { received({.credential = "rented"}); }) == Code::not_found);
  unlink(file.c_str());
  base::Pipe ended = base::make_pipe();
  ended.write_end.reset();
  CHECK(code_thrown_by([&] { link::receive_key(ended.read_end.get()); }) == Code::unavailable);
}
