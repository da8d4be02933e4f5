// Both drivers over HTTP against the fakes of tests/remote, whose machines run programs. Needs
// root, as the machines are namespaces.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <iostream>
#include <random>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/wire/mux.h"
#include "link/driver.h"
#include "link/drivers/remote_fake.h"
#include "thrown_code.h"

namespace moorage::link_test {
namespace {

using link::after;
using link::Deadline;
using link::Labels;
using link::Machine;
using link::MachineState;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Labels kLabels{
    {"moorage-store", "ab12"}, {"moorage-sandbox", "sb_7"}, {"moorage-generation", "3"}};

Deadline soon() { return after(seconds(120)); }

bool usable() {
  signal(SIGPIPE, SIG_IGN);  // as moorage-link does
  if (geteuid() == 0) return true;
  std::cerr << "SKIPPED: the machines of tests/remote need root\n";
  return false;
}

std::string random_bytes(size_t size) {
  std::mt19937_64 random(42);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

struct Program {
  Fd content;
  link::File file;
};

Program program_of(const Machine& machine, const char* path = TEXT_CAT) {
  Program program{Fd(::open(path, O_RDONLY | O_CLOEXEC)), {}};
  program.file.path = machine.directory + "/bin/program";
  program.file.content = program.content.get();
  base::Sha256 digest;
  std::string piece(1 << 20, '\0');
  for (off_t at = 0;;) {
    const ssize_t size = ::pread(program.content.get(), piece.data(), piece.size(), at);
    if (size <= 0) break;
    digest.add(std::string_view(piece).substr(0, static_cast<size_t>(size)));
    at += size;
  }
  program.file.digest = base::to_hex(digest.raw());
  return program;
}

bool wait_for(int fd, short events, Deadline deadline) {
  pollfd polled{fd, events, 0};
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - after(milliseconds(0)));
  return ::poll(&polled, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) > 0;
}

// Sends all, then reads until the end of the stream.
std::string through(link::Run& run, std::string_view sent, Deadline deadline) {
  std::thread sender([&run, sent]() mutable {
    while (!sent.empty() && wait_for(run.stream(), POLLOUT, soon())) {
      const ssize_t size = ::send(run.stream(), sent.data(), sent.size(), MSG_NOSIGNAL);
      if (size < 0 && errno != EAGAIN) return;
      sent.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, size)));
    }
    ::shutdown(run.stream(), SHUT_WR);
  });
  std::string received;
  std::string piece(64 << 10, '\0');
  while (wait_for(run.stream(), POLLIN, deadline)) {
    const ssize_t size = ::recv(run.stream(), piece.data(), piece.size(), 0);
    if (size <= 0) break;
    received.append(piece, 0, static_cast<size_t>(size));
  }
  sender.join();
  return received;
}

const auto kProviders = {"e2b", "daytona"};

TEST_CASE("a machine is made once, found by labels, and gone after its end", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  CHECK(machine.directory.ends_with("/.moorage"));
  CHECK(fake.driver()->make(kLabels, soon()).id == machine.id);
  Labels next = kLabels;
  next["moorage-generation"] = "4";
  const Machine other = driver->make(next, soon());
  CHECK(other.id != machine.id);
  CHECK(driver->find({{"moorage-store", "ab12"}}, soon()).size() == 2);
  CHECK(driver->find({{"moorage-store", "ff"}}, soon()).empty());
  const Labels labels = driver->find(kLabels, soon()).at(0).labels;
  CHECK(std::includes(labels.begin(), labels.end(), kLabels.begin(), kLabels.end()));
  CHECK(driver->state(machine, soon()) == MachineState::running);
  driver->extend(machine, seconds(3600), soon());
  driver->end(machine, soon());
  CHECK(driver->state(machine, soon()) == MachineState::gone);
  driver->end(machine, soon());
}

TEST_CASE("a machine is reached while it exists, and never made by that", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const auto code = [&](Deadline deadline) {
    try {
      driver->reach(kLabels, deadline);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::internal;
  };
  CHECK(code(soon()) == Code::not_found);
  CHECK(code(after(seconds(1))) == Code::deadline_exceeded);  // too few looks to be sure
  CHECK(driver->find(kLabels, soon()).empty());
  const Machine machine = driver->make(kLabels, soon());
  CHECK(driver->reach(kLabels, soon()).id == machine.id);
  driver->end(machine, soon());
}

TEST_CASE("bytes pass run() unchanged both ways", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  const Program program = program_of(machine);
  driver->put(machine, program.file, soon());
  const std::string before = fake.requests();
  driver->put(machine, program.file, soon());  // it is there: no upload
  CHECK(fake.requests().find("files", before.size()) == std::string::npos);
  const std::string sent = random_bytes(10 << 20);
  const auto begun = std::chrono::steady_clock::now();
  const auto run = driver->run(machine, {program.file.path, "it's \"$HOME\""}, soon());
  const std::string received = through(*run, sent, after(seconds(240)));
  const auto reason = run->reason();
  INFO((reason ? reason->message() : ""));
  CHECK(!reason);
  CHECK(received.size() == sent.size());
  CHECK(base::sha256_hex(received) == base::sha256_hex(sent));
  std::cerr
      << provider << ": 10 MB both ways in "
      << std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun).count()
      << " ms\n";
}

TEST_CASE("a program that fails, or is missing, ends its stream with the reason", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  const Program program = program_of(machine);
  driver->put(machine, program.file, soon());
  const auto run = driver->run(machine, {program.file.path, "exit", "9"}, soon());
  CHECK(through(*run, "", soon()).empty());
  REQUIRE(run->reason());
  INFO(run->reason()->message());
  CHECK(run->reason()->message().find("9") != std::string::npos);
  const auto missing = [&] {
    const auto none = driver->run(machine, {"/nowhere/program"}, soon());
    through(*none, "", soon());
    REQUIRE(none->reason());
    throw *none->reason();
  };
  CHECK_THROWS_AS(missing(), Error);
}

TEST_CASE("a pause keeps the files, and make resumes", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver("\"on_stop\":\"pause\"");
  CHECK(driver->can_pause());
  const Machine machine = driver->make(kLabels, soon());
  const Program program = program_of(machine);
  driver->put(machine, program.file, soon());
  driver->pause(machine, soon());
  CHECK(driver->state(machine, soon()) == MachineState::paused);
  driver->pause(machine, soon());
  CHECK(driver->find(kLabels, soon()).at(0).state == MachineState::paused);
  CHECK(driver->make(kLabels, soon()).id == machine.id);
  CHECK(driver->state(machine, soon()) == MachineState::running);
  const auto run = driver->run(machine, {program.file.path}, soon());
  CHECK(through(*run, "hello", soon()) == "hello");
}

TEST_CASE("a create without an answer makes no second machine", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  const std::string stall = GENERATE("false", "true");
  CAPTURE(provider, stall);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  fake.control("faults",
               "{\"kind\":\"lost_answer\",\"method\":\"POST\",\"path\":\".*/sandbox(es)?\""
               ",\"stall\":" +
                   stall + "}");
  const auto make = [&] { return driver->make(kLabels, after(seconds(stall == "true" ? 4 : 60))); };
  if (stall == "true") {
    CHECK_THROWS_AS(make(), Error);  // it waits for the answer until its deadline
    driver->make(kLabels, soon());
  } else {
    make();
  }
  CHECK(driver->find({{"moorage-store", "ab12"}}, soon()).size() == 1);
}

// At Daytona a machine has a name, and no other one can have it.
TEST_CASE("a machine that comes up late does not take the place of a newer one", "[drivers]") {
  if (!usable()) return;
  const RemoteFake& fake = RemoteFake::shared("e2b");
  const auto driver = fake.driver();
  fake.control("faults", R"({"kind":"late","method":"POST","path":".*/sandboxes","delay_s":6})");
  const Machine used = driver->make(kLabels, soon());
  const auto all = [&] { return driver->find(kLabels, soon()).size(); };
  const Deadline end = soon();
  while (all() < 2 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(100));
  REQUIRE(all() == 2);
  CHECK(fake.driver()->reach(kLabels, soon()).id == used.id);
  CHECK(all() == 1);
}

TEST_CASE("a create that fails without effect, or must wait, is sent again", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  const std::string status = GENERATE("500", "429", "503");
  CAPTURE(provider, status);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  fake.control("faults",
               "{\"kind\":\"status\",\"method\":\"POST\",\"path\":\".*/sandbox(es)?\","
               "\"status\":" +
                   status + ",\"retry_after_s\":1}");
  const auto begun = std::chrono::steady_clock::now();
  driver->make(kLabels, soon());
  CHECK(std::chrono::steady_clock::now() - begun >= seconds(1));
  CHECK(driver->find({{"moorage-store", "ab12"}}, soon()).size() == 1);
}

TEST_CASE("a machine that changes its state is waited for", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver("\"on_stop\":\"pause\"");
  const Machine machine = driver->make(kLabels, soon());
  driver->pause(machine, soon());
  fake.control("faults",
               "{\"kind\":\"status\",\"method\":\"POST\",\"status\":409,\"count\":3,"
               "\"path\":\".*/(connect|start)\"}");
  driver->resume(machine, soon());
  CHECK(driver->state(machine, soon()) == MachineState::running);
}

TEST_CASE("a volume is made once, and a machine mounts the part with its base tree", "[drivers]") {
  if (!usable()) return;
  const RemoteFake& fake = RemoteFake::shared("daytona");
  const std::string volume = "\"volume\":\"trees\"";
  Labels next = kLabels;
  next["moorage-generation"] = "4";
  const auto driver = fake.driver(volume, "ab12-repo_1-c0ffee");
  const Machine machine = driver->make(kLabels, soon());
  fake.driver(volume, "ab12-repo_1-c0ffee")->make(next, soon());
  const std::string requests = fake.requests();
  const std::string made = R"(["POST","/api/volumes",200])";
  std::string dense;
  for (const char c : requests) dense += c == ' ' ? "" : std::string(1, c);
  REQUIRE(dense.find(made) != std::string::npos);
  CHECK(dense.find(made, dense.find(made) + 1) == std::string::npos);
  fake.control("faults", R"({"kind":"status","method":"GET","path":"/api/volumes/.*","count":null,)"
                         R"("status":200,"body":{"id":"v","state":"error","errorReason":"full"}})");
  next["moorage-generation"] = "5";
  try {
    driver->make(next, soon());
    FAIL("a machine without its volume");
  } catch (const Error& error) {
    CHECK(error.message() == "daytona: volume trees has an error: full");
  }
}

TEST_CASE("a provider's lies about a machine end as errors", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  const auto lie = [&](const std::string& state) {
    fake.control("set", "{\"lies\":{\"" + machine.id + "\":\"" + state + "\"}}");
  };
  lie("levitating");
  const auto begun = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(driver->state(machine, after(seconds(2))), Error);
  CHECK(std::chrono::steady_clock::now() - begun < seconds(30));
  CHECK(driver->find(kLabels, soon()).size() <= 1);
  lie(provider == "e2b" ? "running" : "started");
  fake.control("die", "{\"id\":\"" + machine.id + "\"}");
  CHECK(driver->state(machine, soon()) == MachineState::running);
  CHECK(code_thrown_by([&] { driver->run(machine, {"/bin/cat"}, after(seconds(3))); }) ==
        Code::unavailable);
  fake.control("set", "{\"lies\":{}}");
}

TEST_CASE("the outpost answers through a provider's stream", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  const Program outpost = program_of(machine, OUTPOST);
  driver->put(machine, outpost.file, soon());
  const auto run = driver->run(machine,
                               {outpost.file.path, "connect", "--dir", machine.directory, "--name",
                                "sb_7", "--generation", "3"},
                               soon());
  base::Mux mux(base::Mux::Side::opener);
  mux.open(R"({"what":"hello","protocol":{"oldest":1,"newest":1},"generation":3})");
  const std::string sent(mux.output());
  REQUIRE(::send(run->stream(), sent.data(), sent.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(sent.size()));
  std::string answer;
  std::string piece(64 << 10, '\0');
  while (answer.find("release") == std::string::npos && wait_for(run->stream(), POLLIN, soon())) {
    const ssize_t size = ::recv(run->stream(), piece.data(), piece.size(), 0);
    if (size <= 0) break;
    std::string_view arrived(piece.data(), static_cast<size_t>(size));
    while (const auto frame = mux.next(arrived)) answer += frame->payload;
  }
  const auto reason = run->reason();
  INFO((reason ? reason->message() : ""));
  CHECK(answer.find("release") != std::string::npos);
}

TEST_CASE("a cut stream is an error, never a short success", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  const int bytes = GENERATE(0, 1, 100, 50'000, 1'000'000);
  CAPTURE(provider, bytes);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  const Program program = program_of(machine);
  driver->put(machine, program.file, soon());
  fake.control("faults", "{\"kind\":\"cut\",\"path\":\".*(Process/Start|/logs)\",\"bytes\":" +
                             std::to_string(bytes) + "}");
  const std::string sent = random_bytes(2 << 20);
  std::optional<Error> reason;
  std::string received;
  try {
    const auto run = driver->run(machine, {program.file.path}, soon());
    received = through(*run, sent, soon());
    reason = run->reason();
  } catch (const Error& error) {
    reason = error;
  }
  REQUIRE(reason);
  INFO(reason->message());
  CHECK(received.size() < sent.size());
  CHECK(std::string_view(sent).starts_with(received));
}

TEST_CASE("a run can be dropped at any time, and the next one works", "[drivers]") {
  if (!usable()) return;
  const std::string provider = GENERATE(values(kProviders));
  CAPTURE(provider);
  const RemoteFake& fake = RemoteFake::shared(provider);
  const auto driver = fake.driver();
  const Machine machine = driver->make(kLabels, soon());
  const Program program = program_of(machine);
  driver->put(machine, program.file, soon());
  fake.control("faults", "{\"kind\":\"stall\",\"path\":\".*(SendInput|/input)\"}");
  auto run = driver->run(machine, {program.file.path}, soon());
  REQUIRE(::send(run->stream(), "x", 1, MSG_NOSIGNAL) == 1);
  std::this_thread::sleep_for(milliseconds(200));
  const auto begun = std::chrono::steady_clock::now();
  run.reset();
  CHECK(std::chrono::steady_clock::now() - begun < seconds(30));
  for (int i = 0; i < 5; ++i) driver->run(machine, {program.file.path}, soon());
  const auto again = driver->run(machine, {program.file.path}, soon());
  CHECK(through(*again, "hello", soon()) == "hello");
  CHECK(!again->reason());
}

}  // namespace
}  // namespace moorage::link_test
