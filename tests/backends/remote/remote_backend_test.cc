// RemoteBackend with a script in place of moorage-link (fake_link.py): what it does about machines
// that are full, gone or unreachable.
#include "backends/remote/remote_backend.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "backends/remote/places.h"
#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"

using namespace moorage;
using namespace std::chrono_literals;
using backends::SandboxState;

namespace {

class Store {
 public:
  Store() {
    const char* top = getenv("TMPDIR");
    path_ = std::string(top ? top : "/var/tmp") + "/moorage-remote.XXXXXX";
    base::check(mkdtemp(path_.data()) ? 0 : -1, path_);
    options_.name_prefix = "moorage-remote" + path_.substr(path_.rfind('.') + 1) + "-";
    for (char& c : options_.name_prefix) c = static_cast<char>(std::tolower(c));
    options_.images_directory = path_ + "/images";
    options_.launch_program = LAUNCH_PROGRAM;
    options_.warden_program = WARDEN_PROGRAM;
    options_.egress_program = WARDEN_PROGRAM;  // never run
    options_.remote.link_program = FAKE_LINK;
    options_.remote.outpost_program = WARDEN_PROGRAM;  // likewise
    options_.remote.notes_directory = path_ + "/remote";
    base::make_directories(options_.images_directory);
    add_host("near", 1);
  }
  ~Store() {
    backends::RemoteBackend all = backend();
    for (const std::string& name : all.list()) all.destroy(name);
    base::remove_tree(path_);
  }
  Store(Store&&) = delete;

  void add_host(const std::string& name, uint32_t most) {
    base::make_directories(place(name));
    options_.remote.ssh_hosts.push_back(
        {.name = name, .destination = name, .directory = place(name), .max_sandboxes = most});
  }
  backends::BackendOptions& options() { return options_; }
  backends::RemoteBackend backend() const { return backends::RemoteBackend(options_, "ssh"); }

  std::string name(int number) const {
    return options_.name_prefix + "sb_" + std::to_string(number);
  }
  backends::SandboxSpec spec(int number, const std::string& host = "") const {
    backends::SandboxSpec spec;
    spec.name = name(number);
    spec.directory = path_ + "/sandboxes/sb_" + std::to_string(number);
    spec.runtime = host;
    spec.first_host_id = 1'000'000'000;
    spec.sudo = false;
    spec.remote.generation = 7;
    base::make_directories(spec.directory);
    return spec;
  }

  // Of the machine.
  void set(const std::string& file, const std::string& text, const std::string& host = "near") {
    base::write_file(place(host) + "/" + file, text);
  }
  void clear(const std::string& file, const std::string& host = "near") {
    base::check(unlink((place(host) + "/" + file).c_str()), "remove " + file);
  }
  std::string read(const std::string& file, const std::string& host = "near") const {
    return base::read_file_if_exists(place(host) + "/" + file).value_or("");
  }
  bool exists_there(int number, const std::string& host = "near") const {
    return read("there", host).find(name(number) + "\n") != std::string::npos;
  }
  size_t notes() const { return backends::list_notes(options_.remote.notes_directory).size(); }

 private:
  std::string place(const std::string& name) const { return path_ + "/" + name; }
  std::string path_;
  backends::BackendOptions options_;
};

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::string(code_name(error.code())) + ": " + error.message() + " | " + error.hint();
  }
  return "none";
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a machine has a note from before it is touched until nothing is left there") {
  Store store;
  backends::RemoteBackend backend = store.backend();
  const auto status = backend.start(store.spec(1));
  CHECK(status.state == SandboxState::running);
  CHECK(store.exists_there(1));
  const auto notes = backends::list_notes(store.options().remote.notes_directory);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].sandbox == store.name(1));
  CHECK(notes[0].place == "near");
  CHECK(notes[0].generation == 7);
  CHECK(backend.start(store.spec(1)).init == status.init);
  backend.attach(store.name(1), {});
  backend.stop(store.name(1), 100ms);
  CHECK(store.read("calls") == "connect\nconnect\nbegin\nshutdown\n");
  CHECK_FALSE(store.exists_there(1));
  CHECK(store.notes() == 0);
  CHECK(backend.list().empty());
}

TEST_CASE("a full host refuses a start and shows its use, and another host takes it") {
  Store store;
  store.add_host("far", 1);
  backends::RemoteBackend backend = store.backend();
  backend.start(store.spec(1, "near"));
  const std::string refused = refusal([&] { backend.start(store.spec(2, "near")); });
  has(refused, "resource_exhausted: ");
  has(refused, "near 1 of 1");
  CHECK(store.notes() == 1);
  backend.start(store.spec(2));
  CHECK(store.exists_there(2, "far"));
  backend.destroy(store.name(1));
  CHECK_FALSE(store.exists_there(1));
  backend.start(store.spec(3));
  CHECK(store.exists_there(3));
}

TEST_CASE(
    "the message says which host is unknown, which program is missing, or that no host exists") {
  Store store;
  has(refusal([&] { store.backend().start(store.spec(1, "moon")); }), "near");
  store.options().remote.link_program = "/no/such/program";
  has(refusal([&] { store.backend().start(store.spec(1)); }), "/no/such/program is missing");
  store.options().remote.ssh_hosts.clear();
  has(refusal([&] { store.backend().start(store.spec(1)); }), "backends.ssh");
  CHECK(store.notes() == 0);
  store.options().remote.link_program = FAKE_LINK;
}

TEST_CASE("a start that the machine refuses leaves nothing here and there") {
  Store store;
  backends::RemoteBackend backend = store.backend();
  store.set("fail-connect", "its disk is full");
  const std::string refused = refusal([&] { backend.start(store.spec(1)); });
  has(refused, "on near: ");
  has(refused, "its disk is full");
  CHECK(store.read("calls") == "connect\nremove\n");
  CHECK(store.notes() == 0);
  CHECK(backend.list().empty());
  store.clear("fail-connect");
  CHECK(backend.start(store.spec(1)).state == SandboxState::running);
}

TEST_CASE("a start of a running sandbox that cannot be reached ends nothing") {
  Store store;
  backends::RemoteBackend backend = store.backend();
  const auto status = backend.start(store.spec(1));
  store.set("fail-connect", "the cable is out");
  has(refusal([&] { backend.start(store.spec(1)); }), "the cable is out");
  CHECK(backend.inspect(store.name(1)).init == status.init);
  CHECK(store.exists_there(1));
  CHECK(store.notes() == 1);
}

TEST_CASE("a machine without namespaces for a sandbox is refused with what to change") {
  Store store;
  backends::RemoteBackend backend = store.backend();
  for (const char* status :
       {R"({"overlay":"none"})", R"({"pid_namespace":false})", R"({"net_namespace":false})"}) {
    store.set("status", status);
    backend.start(store.spec(1));
    const std::string refused = refusal([&] { backend.attach(store.name(1), {}); });
    has(refused, "unsupported: ");
    has(refused, "allow unprivileged user namespaces there");
    backend.destroy(store.name(1));
  }
}

TEST_CASE("a backend learns from its first sandbox whether root and limits exist there") {
  Store store;
  backends::RemoteBackend backend = store.backend();
  CHECK(backend.capabilities().root);
  CHECK_FALSE(backend.capabilities().limits_pids);
  store.set("status", R"({"root_inside":false,"limits":["pids","cpus"]})");
  backend.start(store.spec(1));
  backend.attach(store.name(1), {});
  for (const auto& can : {backend.capabilities(), backend.known_capabilities()}) {
    CHECK_FALSE(can.root);
    CHECK(can.limits_pids);
    CHECK(can.limits_cpu);
    CHECK_FALSE(can.limits_memory);
  }
}

TEST_CASE("of several machines, root counts on one, and a limit only on all") {
  Store store;
  store.add_host("far", 1);
  store.set("status", R"({"limits":["pids","memory"]})");
  store.set("status", R"({"root_inside":false,"limits":["pids"]})", "far");
  backends::RemoteBackend backend = store.backend();
  for (int number = 1; number <= 2; ++number) {
    backend.start(store.spec(number, number == 1 ? "near" : "far"));
    CHECK_FALSE(backend.known_capabilities().limits_pids);
    backend.attach(store.name(number), {});
    CHECK(backend.known_capabilities().root);
  }
  CHECK(backend.known_capabilities().limits_pids);
  CHECK_FALSE(backend.known_capabilities().limits_memory);
}

TEST_CASE("a sandbox whose machine cannot be reached is destroyed here and keeps its note") {
  Store store;
  {
    backends::RemoteBackend backend = store.backend();
    backend.start(store.spec(1));
    store.set("status", R"({"connected":false})");
    backend.destroy(store.name(1));
    CHECK(backend.list().empty());
    CHECK(store.exists_there(1));
    CHECK(store.notes() == 1);
    has(refusal([&] { backend.start(store.spec(2)); }), "near 1 of 1");
  }
  // As after a restart of the daemon: the machine can be reached, and refuses.
  backends::RemoteBackend backend = store.backend();
  store.set("fail-remove", "a process hangs in the kernel");
  backend.destroy(store.name(1));
  CHECK(store.notes() == 1);
  store.clear("fail-remove");
  backend.destroy(store.name(1));
  CHECK_FALSE(store.exists_there(1));
  CHECK(store.notes() == 0);
}

TEST_CASE("a host that is no longer configured keeps its notes until it is again") {
  Store store;
  store.backend().start(store.spec(1));
  auto hosts = std::exchange(store.options().remote.ssh_hosts, {});
  store.add_host("far", 1);
  store.backend().destroy(store.name(1));
  CHECK(store.exists_there(1));
  CHECK(store.notes() == 1);
  has(refusal([&] { store.backend().start(store.spec(1)); }), "near");
  CHECK(store.notes() == 1);
  store.options().remote.ssh_hosts = std::move(hosts);
  store.backend().destroy(store.name(1));
  CHECK_FALSE(store.exists_there(1));
  CHECK(store.notes() == 0);
}

TEST_CASE("a stop whose last sync fails removes nothing, and the next one may succeed") {
  Store store;
  backends::RemoteBackend backend = store.backend();
  const auto status = backend.start(store.spec(1));
  store.set("fail-shutdown", "the cable is out");
  const std::string refused = refusal([&] { backend.stop(store.name(1), 100ms); });
  has(refused, "its last changes could not be fetched");
  has(refused, "the cable is out");
  CHECK(backend.inspect(store.name(1)).init == status.init);
  CHECK(base::process_alive(status.init));
  CHECK(store.exists_there(1));
  CHECK(store.notes() == 1);
  store.clear("fail-shutdown");
  backend.stop(store.name(1), 100ms);
  CHECK(backend.list().empty());
  CHECK_FALSE(store.exists_there(1));
  CHECK(store.notes() == 0);
}

TEST_CASE("after a kill of its link, a start of a sandbox goes on with the same machine") {
  Store store;
  store.add_host("far", 5);  // has more room
  backends::RemoteBackend backend = store.backend();
  const auto before = backend.start(store.spec(1, "near"));
  REQUIRE(kill(before.init.pid, SIGKILL) == 0);
  while (base::process_alive(before.init)) std::this_thread::sleep_for(1ms);
  CHECK(backend.inspect(store.name(1)).state == SandboxState::stopped);
  const auto after = backend.start(store.spec(1));
  CHECK(after.state == SandboxState::running);
  CHECK_FALSE(after.init == before.init);
  CHECK(store.exists_there(1, "near"));
  CHECK_FALSE(store.exists_there(1, "far"));
  CHECK(store.notes() == 1);
}
