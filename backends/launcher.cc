#include "backends/launcher.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <thread>

#include "backends/envd_client.h"
#include "base/error.h"
#include "base/net/loopback.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/namespaces.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kGreeting = "{\"version\":1}\n";  // base/wire/bootstrap.cc
constexpr size_t kMaxGreetingBytes = 256;
constexpr size_t kMaxLogBytes = 2000;  // of the engine's log, in an error

milliseconds left_until(Clock::time_point deadline) {
  auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) {
    throw Error(Code::deadline_exceeded, "the sandbox did not start in time");
  }
  return left;
}

using Container = LaunchPlan::Container;  // pid 0: moorage-launch makes it

std::string request_text(const SandboxSpec& spec, const LaunchPlan& plan,
                         const Container& container) {
  launch::Request request = plan;
  request.name = spec.name;
  request.first_host_id = spec.first_host_id;
  request.sudo = spec.sudo;
  request.memory_bytes = spec.limits.memory_bytes;
  request.bootstrap = spec.directory + "/" + kBootstrapSocket;
  request.log = spec.directory + "/launch.log";
  for (const Mount& mount : spec.mounts) request.places.push_back(mount.target);
  request.init_pid = container.init.pid;
  request.init_start_ticks = container.init.start_ticks;
  request.files = container.files;
  if (container.init.pid != 0) request.cgroups = container.cgroups;
  request.cgroup_links = container.cgroup_links;
  json::object object;
  launch::each_field(request, [&object](const char* key, const auto& field) {
    object[key] = json::value_from(field);
  });
  return json::serialize(object);
}

// The engine's own words, for the reader of the error.
std::string log_tail(const std::string& directory) {
  auto log = base::read_file_if_exists(directory + "/launch.log");
  if (!log || log->empty()) return {};
  const size_t start = log->size() > kMaxLogBytes ? log->size() - kMaxLogBytes : 0;
  return "; its log ends: " + log->substr(start);
}

[[noreturn]] void throw_failed(const base::ProcessResult& result, const std::string& directory) {
  boost::system::error_code parse_error;
  json::value answer = json::parse(result.output, parse_error);
  const json::object* object = parse_error ? nullptr : answer.if_object();
  if (object && object->contains("error")) {
    const json::object& error = object->at("error").as_object();
    throw Error(base::code_from_name(json::value_to<std::string>(error.at("code"))),
                json::value_to<std::string>(error.at("message")) + log_tail(directory),
                json::value_to<std::string>(error.at("hint")));
  }
  std::string how = result.signal ? "was ended by signal " + std::to_string(result.signal)
                                  : "exited with " + std::to_string(result.exit_code);
  throw Error(Code::unavailable,
              "moorage-launch " + how + ": " + result.error + log_tail(directory));
}

base::ProcessIdentity identify_init(pid_t pid, const SandboxSpec& spec) {
  base::ProcessIdentity init = base::identify_process(pid);
  if (pid > 0 && init.start_ticks != 0) return init;
  throw Error(Code::unavailable,
              "the sandbox's process 1 exited at startup" + log_tail(spec.directory));
}

base::ProcessIdentity run_launch(const SandboxSpec& spec, const LaunchPlan& plan,
                                 const Container& container, Clock::time_point deadline) {
  base::ProcessOptions options;
  options.input = request_text(spec, plan, container);
  options.deadline = left_until(deadline);
  base::ProcessResult result = base::run_process({plan.program}, options);
  if (!result.ok()) throw_failed(result, spec.directory);
  const json::value answer = json::parse(result.output);
  return identify_init(json::value_to<int>(answer.at("init_pid")), spec);
}

// The connection of the warden, which waits for its listener.
Fd accept_warden(int bootstrap, const base::ProcessIdentity& init, Clock::time_point deadline) {
  if (!base::wait_readable(bootstrap, static_cast<int>(left_until(deadline).count()))) {
    throw Error(Code::deadline_exceeded, "the warden did not report in time");
  }
  Fd peer(base::check(accept4(bootstrap, nullptr, nullptr, SOCK_CLOEXEC), "reach the warden"));
  const auto credentials = base::peer_credentials(peer.get());
  if (credentials.pid != init.pid) {
    throw Error(Code::corrupted, "process " + std::to_string(credentials.pid) +
                                     " connected instead of the sandbox's process 1");
  }
  // Read its greeting before answering: closing a socket with unread bytes would reset the answer.
  if (!base::wait_readable(peer.get(), static_cast<int>(left_until(deadline).count()))) {
    throw Error(Code::deadline_exceeded, "the warden sent no greeting");
  }
  const std::string greeting = base::receive_with_fds(peer.get(), kMaxGreetingBytes).bytes;
  if (greeting != kGreeting) {
    throw Error(Code::unsupported, "the warden speaks another version: " + greeting,
                "install moorage-warden of the same release as mooraged");
  }
  return peer;
}

WardenInfo meet_warden(const std::string& socket, const base::ProcessIdentity& init,
                       Clock::time_point deadline) {
  EnvdClient client(Endpoint{socket});
  constexpr milliseconds kOneTry{1000};
  std::optional<WardenInfo> warden;
  while (!(warden = client.introduce(std::min(kOneTry, left_until(deadline))))) {
    if (!base::process_alive(init)) throw Error(Code::unavailable, "the warden exited at startup");
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (!base::common_protocol(base::kProtocols, warden->protocols)) {
    throw Error(Code::unsupported,
                "the warden is of moorage " + warden->release + " and speaks " +
                    to_string(warden->protocols) + "; this daemon is of " + base::kRelease +
                    " and speaks " + to_string(base::kProtocols),
                "install moorage-warden and mooraged of one release, then restart mooraged");
  }
  return *warden;
}

}  // namespace

Launched launch(const SandboxSpec& spec, const LaunchPlan& plan) {
  const auto deadline = Clock::now() + spec.deadline;
  const std::string bootstrap_path = spec.directory + "/" + kBootstrapSocket;
  const std::string warden_path = spec.directory + "/" + kWardenSocket;
  struct Unlink {
    const std::string& path;
    ~Unlink() { unlink(path.c_str()); }
  } unlink_bootstrap{bootstrap_path};

  unlink((spec.directory + "/launch.log").c_str());
  // Any process inside may connect: so far only the warden is there, and its id is not host root.
  Fd bootstrap = base::listen_unix(bootstrap_path, 0666);
  Fd listener = base::listen_unix(warden_path, 0600);
  const base::ProcessIdentity init =
      plan.start_container ? identify_init(plan.start_container(left_until(deadline)), spec)
                           : run_launch(spec, plan, {}, deadline);
  const Fd warden = accept_warden(bootstrap.get(), init, deadline);
  if (plan.start_container) run_launch(spec, plan, plan.take_over(init), deadline);
  // From outside, so that they can be exchanged (base/os/namespaces.h). The warden waits
  // meanwhile.
  base::in_mount_namespace(init, [&] {
    for (const Mount& mount : spec.mounts) {
      if (mount.fd != kOnlyPlace) base::attach_mount(mount.fd, mount.target);
    }
  });
  std::vector<int> fds{listener.get()};
  if (spec.network_line >= 0) {
    // The keeper of a link works in the host's network; its sandbox has its own elsewhere.
    if (plan.link_config.empty()) {
      base::in_network_namespace(init, [] {
        base::set_up_sandbox_loopback();
        base::set_sandbox_socket_defaults();
      });
    }
    fds.push_back(spec.network_line);
  }
  base::send_with_fds(warden.get(), "L", fds);
  listener.reset();
  try {
    return {init, meet_warden(warden_path, init, deadline)};
  } catch (const Error& error) {
    // Of a link the log says why its workers end.
    throw Error(error.code(), error.message() + log_tail(spec.directory), error.hint());
  }
}

std::string copy_program(const std::string& program, const std::string& directory, mode_t mode) {
  struct stat info;
  if (stat(program.c_str(), &info) < 0) base::throw_errno("find the program " + program);
  const std::string prefix = program.substr(program.rfind('/') + 1) + "-";
  const std::string name = prefix + std::to_string(info.st_mtim.tv_sec) + "." +
                           std::to_string(info.st_mtim.tv_nsec) + "-" +
                           std::to_string(info.st_size) + "-" + std::to_string(info.st_ino);
  const std::string path = directory + "/" + name;
  // A copy truncated by a power cut has the right name, and would fail every start.
  struct stat copy;
  if (lstat(path.c_str(), &copy) == 0 && copy.st_size == info.st_size) return path;
  base::make_directories(directory);
  base::write_file_durable(path, base::read_file(program), mode);
  for (const std::string& other : base::list_directory(directory)) {
    if (other.starts_with(prefix) && other != name) unlink((directory + "/" + other).c_str());
  }
  return path;
}

}  // namespace moorage::backends
