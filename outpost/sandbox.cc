#include "outpost/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "outpost/changes.h"
#include "outpost/inside/plain.h"
#include "outpost/inside/process_tree.h"
#include "outpost/operation.h"
#include "outpost/programs.h"
#include "outpost/trees.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr auto kEndPatience = milliseconds(10'000);
constexpr auto kWardenPatience = milliseconds(10'000);
constexpr auto kPause = milliseconds(5);
constexpr size_t kMaxSmallFile = 64 << 10;

std::string facts(std::optional<OverlayKind> overlay, const std::vector<std::string>& limits,
                  const std::string& reason = {}) {
  const bool spaces = overlay && *overlay != OverlayKind::none;
  // Without namespaces, root of the machine.
  const bool root = overlay == OverlayKind::root || (overlay && !spaces && geteuid() == 0);
  return json::serialize(
      json::object{{"overlay", overlay_name(overlay.value_or(OverlayKind::none))},
                   {"usable", overlay.has_value()},
                   {"user_namespace", spaces},
                   {"pid_namespace", spaces},
                   {"mount_namespace", spaces},
                   {"net_namespace", spaces},
                   {"root_inside", root},
                   {"sudo", false},  // no command gets new privileges
                   {"limits", json::value_from(limits)},
                   {"reason", reason}});
}

const char* attempt_name(OverlayKind kind) {
  if (kind == OverlayKind::none) return "without namespaces: ";
  return kind == OverlayKind::root ? "as root: " : "as a user: ";
}

bool gone(const base::ProcessIdentity& identity, milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (base::process_alive(identity)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

void make_owned(const std::string& path, uint32_t id, mode_t mode) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) base::throw_errno("make " + path);
  if (geteuid() == 0) base::check(lchown(path.c_str(), id, id), "change the owner of " + path);
  base::check(chmod(path.c_str(), mode), "set the mode of " + path);
}

// One request to the warden's socket; the first line of its answer.
std::string ask_warden(const std::string& socket_path, const std::string& request,
                       milliseconds patience) {
  const auto wait_ms = static_cast<int>(patience.count());
  const Fd socket = base::connect_unix(socket_path, wait_ms);
  base::write_all(socket.get(), request);
  if (!base::wait_readable(socket.get(), wait_ms))
    throw Error(Code::deadline_exceeded, "the warden does not answer");
  const std::string answer = base::receive_with_fds(socket.get(), 4096).bytes;
  return answer.substr(0, answer.find('\r'));
}

void make_inside(const RootPlan& plan, const ProcessOne& one, const Handover& handover) {
  if (plan.overlay != OverlayKind::none) return make_process_one(plan, one, handover);
  make_plain_places(plan);
  make_plain_process(plan, one, handover);
}

}  // namespace

void Sandbox::make() const {
  make_private_directory(path_);
  for (const char* name : {"/root", "/empty", "/said", "/learned", "/incoming"})
    make_owned(path_ + name, geteuid(), 0755);
}

std::optional<uint64_t> Sandbox::generation() const {
  const auto text = base::read_file_if_exists(path_ + "/generation", kMaxSmallFile);
  if (!text) return {};
  return std::stoull(*text);
}

void Sandbox::set_generation(uint64_t generation) const {
  base::write_file(path_ + "/generation", std::to_string(generation));
}

void Sandbox::give_up() const { base::write_file_durable(path_ + "/given_up", ""); }

bool Sandbox::given_up() const { return base::path_exists(path_ + "/given_up"); }

bool Sandbox::started() const {
  const auto one = living(path_);
  return one && one->started;
}

Fd Sandbox::lock() const {
  Fd file = base::open_file(path_ + "/ops.lock", O_RDWR | O_CREAT, 0600);
  // A killed serve's child may still be about to die.
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) base::throw_errno("lock the sandbox");
  }
  return file;
}

std::optional<Setup> Sandbox::setup() const {
  const auto text = base::read_file_if_exists(path_ + "/prepared.json", kMaxSmallFile);
  if (!text) return {};
  const json::value value = json::parse(*text);
  Setup setup{std::string(value.at("tree").as_string()),
              std::string(value.at("objects").as_string()),
              std::string(value.at("certificates").as_string())};
  setup.limits = {value.at("memory_bytes").to_number<uint64_t>(),
                  value.at("pids").to_number<uint64_t>(),
                  value.at("cpu_thousandths").to_number<uint64_t>()};
  return setup;
}

void Sandbox::require_same_boot() const {
  const auto text = base::read_file_if_exists(path_ + "/prepared.json", kMaxSmallFile);
  if (!text || json::parse(*text).at("boot").as_string() == base::boot_id()) return;
  throw Error(Code::not_found,
              "this machine has restarted: files of the sandbox here may have lost their contents",
              "remove it there, and start it again from the workspace");
}

std::vector<std::string> Sandbox::used_trees() const {
  const auto used = setup();
  if (!used) return {};
  return {used->tree, used->objects, used->certificates};
}

std::optional<OverlayKind> Sandbox::chosen_overlay() const {
  const auto text = base::read_file_if_exists(path_ + "/prepared.json", kMaxSmallFile);
  if (!text) return {};
  return overlay_of(json::parse(*text).at("overlay").as_string());
}

void Sandbox::make_directories(OverlayKind overlay) const {
  make_owned(spool(), overlay == OverlayKind::root ? kFirstId : geteuid(), 0700);
  if (overlay == OverlayKind::none) return;
  const uint32_t user = overlay == OverlayKind::root ? kFirstId + kInsideUser : geteuid();
  for (const char* part : {"/tree", "/home"}) {
    make_owned(path_ + part, geteuid(), 0700);
    make_owned(path_ + part + "/work", geteuid(), 0700);
    // Only once: commands inside may change its mode and owner.
    if (!base::path_exists(path_ + part + "/upper"))
      make_owned(path_ + part + "/upper", user, 0755);
  }
}

RootPlan Sandbox::plan(const Setup& setup, OverlayKind overlay) const {
  RootPlan plan{overlay, path_, path_ + "/empty", {}, {}, setup.limits};
  if (!setup.tree.empty()) plan.tree = complete_tree(directory_, setup.tree);
  if (!setup.objects.empty()) plan.objects = complete_tree(directory_, setup.objects);
  if (!setup.certificates.empty())
    plan.certificates = complete_tree(directory_, setup.certificates);
  return plan;
}

std::vector<OverlayKind> Sandbox::kinds_to_try(const Setup& setup) const {
  if (const auto chosen = chosen_overlay()) return {*chosen};  // its marks are in the files
  std::vector<OverlayKind> kinds;
  if (geteuid() == 0) kinds.push_back(OverlayKind::root);
  kinds.push_back(OverlayKind::user);
  if (setup.plain) kinds.push_back(OverlayKind::none);
  return kinds;
}

// A namespace cannot be left, so each attempt has a process of its own.
ProcessOne Sandbox::build(const Setup& setup) const {
  std::string reasons;
  for (const OverlayKind kind : kinds_to_try(setup)) {
    make_directories(kind);
    const RootPlan wanted = plan(setup, kind);
    Handover handover{base::listen_unix(warden_socket(), 0600), base::open_directory(spool()),
                      open_warden()};
    try {
      ProcessOne one;
      one.tree = setup.tree;
      one.objects = setup.objects;
      run_apart([&] {
        make_inside(wanted, one, handover);
        return std::string();
      });
      if (const auto made = living(path_)) return *made;
      throw Error(Code::internal, "process 1 ended at once");
    } catch (const Error& error) {
      reasons += std::string(reasons.empty() ? "" : "; ") + attempt_name(kind) + error.message();
    }
  }
  throw Error(Code::unsupported, "this machine cannot hold a sandbox: " + reasons);
}

std::string Sandbox::abilities() const {
  if (const auto chosen = chosen_overlay()) {
    const auto one = living(path_);
    return facts(chosen, one ? one->limits : std::vector<std::string>());
  }
  const Fd held = lock();
  const Sandbox trial(directory_, path_.substr(path_.rfind('/') + 1) + kTrial);
  std::string answer;
  try {
    if (base::path_exists(trial.path_)) trial.destroy();  // of a killed attempt
    trial.make();
    answer = facts(trial.build({}).overlay, {});
  } catch (const Error& error) {
    answer = facts({}, {}, error.message());
  }
  trial.destroy();
  remove_whatever(trial.path_);
  return answer;
}

std::string Sandbox::prepare(const Setup& wanted) const {
  const Fd held = lock();
  const auto before = setup();
  if (before && (before->tree != wanted.tree || before->objects != wanted.objects))
    throw Error(Code::conflict, "this sandbox was prepared with another tree");
  const auto one = living(path_);  // perhaps of an attempt that was killed before the next line
  if (one && (one->tree != wanted.tree || one->objects != wanted.objects))
    throw Error(Code::conflict, "this sandbox is being prepared with another tree");
  const ProcessOne made = one ? *one : build(wanted);
  if (!before) {
    const json::object prepared{{"boot", base::boot_id()},
                                {"tree", wanted.tree},
                                {"objects", wanted.objects},
                                {"certificates", wanted.certificates},
                                {"memory_bytes", wanted.limits.memory_bytes},
                                {"pids", wanted.limits.pids},
                                {"cpu_thousandths", wanted.limits.cpu_thousandths},
                                {"overlay", overlay_name(made.overlay)}};
    base::write_file(path_ + "/prepared.json", json::serialize(prepared));
  }
  return facts(made.overlay, made.limits);
}

ProcessOne Sandbox::inside() const {
  if (const auto one = living(path_)) {
    if (can_be_entered(*one)) return *one;
    if (!gone(one->identity, kEndPatience))
      throw Error(Code::unavailable, "the sandbox does not end: a process hangs in the kernel");
  }
  const auto prepared = setup();
  if (!prepared) throw Error(Code::conflict, "the sandbox is not prepared");
  return build(*prepared);
}

std::string Sandbox::apply(uint64_t number, bool repairs, Fd pack) const {
  const Fd held = lock();
  const std::string file = path_ + "/applied";
  const auto last = base::read_file_if_exists(file, kMaxSmallFile);
  if (last && std::stoull(*last) >= number) return R"({"ok":true})";
  const ProcessOne one = inside();
  run_apart([&] {
    apply_changes(path_, one, number, std::move(pack));
    return std::string();
  });
  base::write_file(file, std::to_string(number));
  if (repairs) base::remove_tree(path_ + "/lost.json");
  return R"({"ok":true})";
}

// The order: first the list of all files from before the first start, as link knows them; then the
// record, so that a repeat does not add the commands' own changes to that list; then the signal,
// which a running warden ignores.
std::string Sandbox::start() const {
  const Fd held = lock();
  if (given_up()) throw Error(Code::conflict, "this sandbox was given up");
  ProcessOne one = inside();
  if (!one.started) {
    run_apart([&] {
      begin_record(path_, one);
      return std::string();
    });
    one.started = true;
    write_record(path_, one);
  }
  base::check(kill(one.identity.pid, SIGUSR1), "start the warden");
  const std::string status =
      ask_warden(warden_socket(), "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                 kWardenPatience);
  if (status != "HTTP/1.1 204 No Content")
    throw Error(Code::unavailable, "the warden does not start: it answered '" + status + "'");
  return R"({"ok":true})";
}

std::string Sandbox::sync(uint64_t acknowledged) const {
  const Fd held = lock();
  if (base::path_exists(path_ + "/lost.json"))
    throw Error(Code::conflict, "files that this machine lost are not here again yet");
  const auto look = [&](const ProcessOne& one) {
    return run_apart([&] {
      const bool changed = find_changes(path_, one, acknowledged);
      return json::serialize(json::object{{"changed", changed}});
    });
  };
  const ProcessOne one = inside();
  try {
    return look(one);
  } catch (const Error&) {
    if (can_be_entered(one)) throw;
  }
  return look(inside());  // it was killed meanwhile
}

std::string Sandbox::compare(uint64_t acknowledged) const {
  const Fd held = lock();
  if (!setup() || base::path_exists(path_ + "/lost.json")) return "{}";
  const bool lived = prepared();
  const ProcessOne one = inside();
  const std::string lost = run_apart([&] {
    const Losses found = find_losses(path_, one, acknowledged);
    // Without a running sandbox there is nothing into which they could be sent again.
    if (!found.paths.empty() && !lived) throw_lost();
    return json::serialize(json::value_from(found.paths));
  });
  if (lost != "[]") base::write_file(path_ + "/lost.json", lost);
  return "{}";
}

std::string Sandbox::lost() const {
  return base::read_file_if_exists(path_ + "/lost.json").value_or("[]");
}

std::string Sandbox::stop(milliseconds grace) const {
  const Fd held = lock();
  const auto one = living(path_);
  if (!one) return R"({"ok":true})";
  if (one->started) {
    const std::string body = "{\"grace_ms\":" + std::to_string(grace.count()) + "}";
    const std::string request =
        "POST /moorage/shutdown HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    try {
      ask_warden(warden_socket(), request, grace + kEndPatience);
      gone(one->identity, kEndPatience);
    } catch (const Error&) {
      // It is killed below.
    }
  }
  kill_inside();
  return R"({"ok":true})";
}

void Sandbox::kill_inside() const {
  const auto one = living(path_);
  if (!one) return;
  const bool left =
      one->overlay == OverlayKind::none && !kill_descendants(one->identity.pid, kEndPatience);
  if (left) throw Error(Code::unavailable, "commands of the sandbox do not end");
  if (kill(one->identity.pid, SIGKILL) != 0 && errno != ESRCH) base::throw_errno("end the sandbox");
  if (!gone(one->identity, kEndPatience))
    throw Error(Code::unavailable, "the sandbox does not end: a process hangs in the kernel");
}

std::string Sandbox::destroy() const {
  const Fd held = lock();
  kill_inside();
  remove_limits(path_);
  clear_plain_places(path_);
  for (const std::string& name : base::list_directory(path_)) {
    if (name.starts_with("serve.") || name == "outpost.sock" || name == "ops.lock") continue;
    remove_whatever(path_ + "/" + name);
  }
  return R"({"ok":true})";
}

void remove_whatever(const std::string& path) {
  if (geteuid() == 0) return base::remove_tree(path);
  run_apart([&] {
    try {
      enter_own_user_namespace(0);
    } catch (const Error&) {
      // Then no sandbox could write there either, and its owner can remove everything.
    }
    base::remove_tree(path);
    return std::string();
  });
}

}  // namespace moorage::outpost
