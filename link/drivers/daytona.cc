#include "link/drivers/daytona.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "link/drivers/daytona_settings.h"
#include "link/drivers/host_patterns.h"
#include "link/drivers/json_reader.h"
#include "link/drivers/machine_search.h"
#include "link/drivers/provider_api.h"
#include "link/drivers/remote_shell.h"
#include "link/drivers/session_stream.h"
#include "link/drivers/stream_run.h"
#include "link/volume/daytona_volume.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr const char* kProvider = "daytona";
constexpr std::chrono::seconds kExtendEvery{60};
constexpr std::chrono::seconds kCreateAttempt{120};
constexpr std::chrono::milliseconds kFirstPoll{100};
constexpr std::chrono::milliseconds kLongestPoll{1'000};
constexpr size_t kPage = 100;
constexpr size_t kMaxPages = 50;
constexpr size_t kMaxCursor = 4 << 10;

enum class Phase { running, paused, gone, failed, changing };

// States that are not known here are taken for a change in progress.
Phase phase_of(std::string_view state) {
  if (state == "started") return Phase::running;
  if (state == "stopped" || state == "paused" || state == "archived") return Phase::paused;
  if (state == "destroyed" || state == "destroying") return Phase::gone;
  if (state == "error" || state == "build_failed") return Phase::failed;
  return Phase::changing;
}

class Daytona : public Driver {
 public:
  explicit Daytona(const DriverOptions& options);
  ~Daytona() override { cancel_.cancel(); }

  Machine make(const Labels& labels, Deadline deadline) override;
  Machine reach(const Labels& labels, Deadline deadline) override;
  std::vector<Machine> find(const Labels& labels, Deadline deadline) override;
  MachineState state(const Machine& machine, Deadline deadline) override;
  void extend(const Machine& machine, std::chrono::seconds life, Deadline deadline) override;
  std::chrono::seconds extend_every() const override { return kExtendEvery; }
  bool can_pause() const override { return settings_.pauses; }
  void pause(const Machine& machine, Deadline deadline) override;
  void resume(const Machine& machine, Deadline deadline) override;
  void end(const Machine& machine, Deadline deadline) override;
  void let_out(const Machine& machine, const base::ProviderRules& rules,
               Deadline deadline) override;
  std::unique_ptr<Run> run(const Machine& machine, const std::vector<std::string>& argv,
                           Deadline deadline) override;
  void put(const Machine& machine, const File& file, Deadline deadline) override;

 private:
  class Shell;
  struct Look {
    Phase phase = Phase::changing;
    std::string state;
    std::string reason;  // of an error
  };

  MachineSearch search(const Labels& labels, Deadline deadline);
  Machine create(const Labels& labels, Deadline deadline);
  Machine awake(Machine machine, Deadline deadline);
  Look look(const Machine& machine, Deadline deadline);
  // Looks until `settled`; throws for a sandbox that failed.
  Look settle(const Machine& machine, const std::function<bool(const Look&)>& settled,
              Deadline deadline);
  void verb(const Machine& machine, const std::string& name, Deadline deadline);
  std::unique_ptr<ProviderApi> toolbox_of(const Machine& machine, const Cancel& cancel,
                                          Deadline deadline);
  void remember(const std::string& id, const JsonObject& object);
  std::string path_of(const Machine& machine) const { return "/sandbox/" + machine.id; }

  const DaytonaSettings settings_;
  const std::string tree_;
  const std::vector<std::pair<std::string, std::string>> headers_;
  const Cancel cancel_;
  const Trust trust_;
  ProviderApi api_;
  std::mutex mutex_;                              // guards the next two
  std::map<std::string, std::string> toolboxes_;  // URLs by id; a new process asks for them
  std::map<std::string, int64_t> auto_stops_;     // minutes by id, as far as they were raised
};

class Daytona::Shell : public RemoteShell {
 public:
  Shell(Daytona& driver, const Machine& machine, Deadline deadline)
      : toolbox_(driver.toolbox_of(machine, driver.cancel_, deadline)) {}

  Result execute(const std::string& script, Deadline deadline) override {
    const HttpResponse response = toolbox_->call(
        {.what = "run a command on the machine",
         .method = "POST",
         .target = "/process/execute",
         .body = json::serialize(JsonObject{{"command", "sh -c " + shell_quoted(script)}})},
        deadline);
    const json::value value = parse_answer(response.body);
    const JsonObject& object = object_in(value, "the result");
    const auto* output = object.if_contains("result");
    return {number_field(object, "exitCode", -1),
            output != nullptr && output->is_string() ? std::string(output->get_string()) : ""};
  }

  void upload(const std::string& path, const std::string& bytes, Deadline deadline) override {
    const std::string boundary = "moorage-" + base::random_hex(16);
    toolbox_->call({.what = "put a file on the machine",
                    .method = "POST",
                    .target = "/files/bulk-upload",
                    .body = form_body(
                        {{"files[0].path", "", path}, {"files[0].file", "file", bytes}}, boundary),
                    .content_type = "multipart/form-data; boundary=" + boundary,
                    .attempt = std::chrono::minutes(10)},
                   deadline);
  }

  bool download(const std::string& path, const std::function<void(std::string_view)>& take,
                Deadline deadline) override {
    const ApiCall call{.what = "read a file of the machine",
                       .target = "/files/download?path=" + percent_encode(path)};
    return download_body(*toolbox_, call, take, deadline);
  }

 private:
  const std::unique_ptr<ProviderApi> toolbox_;
};

Daytona::Daytona(const DriverOptions& options)
    : settings_(read_daytona_settings(options.settings)),
      tree_(options.tree),
      headers_(daytona_headers(settings_, options.key)),
      trust_(make_trust(settings_.ca_file)),
      api_({kProvider, settings_.api, trust_, headers_}, cancel_) {}

std::vector<Machine> Daytona::find(const Labels& labels, Deadline deadline) {
  JsonObject wanted;
  for (const auto& [name, value] : labels) wanted[name] = value;
  const std::string query =
      "?labels=" + percent_encode(json::serialize(wanted)) + "&limit=" + std::to_string(kPage);
  std::vector<Machine> machines;
  std::string cursor;
  for (size_t page = 0; page < kMaxPages; ++page) {
    const HttpResponse response =
        api_.call({.what = "list sandboxes",
                   .target = "/sandbox" + query +
                             (cursor.empty() ? "" : "&cursor=" + percent_encode(cursor))},
                  deadline);
    const json::value value = parse_answer(response.body);
    // Older servers answer with the array itself.
    const json::array* items =
        value.is_array() ? &value.get_array() : array_field(object_in(value, "the list"), "items");
    if (items == nullptr) throw Error(Code::corrupted, "daytona: the list has no items");
    for (const json::value& one : *items) {
      const JsonObject& object = object_in(one, "a sandbox");
      Machine machine{
          id_field(object, "id"), MachineState::running, labels_field(object, "labels"), {}};
      const Phase phase = phase_of(text_field(object, "state"));
      if (phase == Phase::paused) machine.state = MachineState::paused;
      if (phase == Phase::gone || !has_labels(machine.labels, labels)) continue;
      machines.push_back(std::move(machine));
    }
    cursor = value.is_array() ? "" : text_field(value.get_object(), "nextCursor");
    if (cursor.empty()) return machines;
    if (cursor.size() > kMaxCursor) throw Error(Code::corrupted, "daytona: a cursor is too long");
  }
  throw Error(Code::corrupted, "daytona: the list of sandboxes does not end");
}

Machine Daytona::create(const Labels& labels, Deadline deadline) {
  JsonObject request = settings_.create;
  JsonObject labels_object;
  for (const auto& [name, value] : labels) labels_object[name] = value;
  request["labels"] = labels_object;
  request["name"] = daytona_name(labels);
  if (!settings_.volume.empty() && !tree_.empty()) {
    const std::string volume = ready_volume(api_, settings_.volume, deadline);
    request["volumes"] = json::array{part_of_volume(volume, part_name(labels, tree_))};
  }
  const ApiCall call{.what = "create a sandbox",
                     .method = "POST",
                     .target = "/sandbox",
                     .body = json::serialize(request),
                     .may_repeat = false,
                     .accepted = {409},
                     .attempt = kCreateAttempt};
  const HttpResponse response = api_.call(call, deadline);
  if (response.status == 409)  // the name is taken, perhaps by an earlier attempt
    throw Error(Code::unknown_outcome, api_.failure(call.what, response).message());
  const json::value value = parse_answer(response.body);
  const JsonObject& object = object_in(value, "the new sandbox");
  Machine machine{id_field(object, "id"), MachineState::running, labels, {}};
  remember(machine.id, object);
  return machine;
}

MachineSearch Daytona::search(const Labels& labels, Deadline deadline) {
  MachineSearch search;
  search.find = [=, this] { return find(labels, deadline); };
  search.create = [=, this] { return create(labels_now(labels), deadline); };
  search.end = [=, this](const Machine& machine) { end(machine, deadline); };
  return search;
}

Machine Daytona::make(const Labels& labels, Deadline deadline) {
  return awake(find_or_create(search(labels, deadline), deadline), deadline);
}

Machine Daytona::reach(const Labels& labels, Deadline deadline) {
  return awake(find_existing(search(labels, deadline), deadline), deadline);
}

Machine Daytona::awake(Machine machine, Deadline deadline) {
  resume(machine, deadline);
  machine.resumed = std::exchange(machine.state, MachineState::running) == MachineState::paused;
  Shell shell(*this, machine, deadline);
  machine.directory = make_directory(shell, settings_.directory, deadline);
  return machine;
}

void Daytona::remember(const std::string& id, const JsonObject& object) {
  const std::string url = text_field(object, "toolboxProxyUrl");
  const std::lock_guard lock(mutex_);
  if (!url.empty()) toolboxes_[id] = url;
}

Daytona::Look Daytona::look(const Machine& machine, Deadline deadline) {
  const HttpResponse response = api_.call(
      {.what = "look up sandbox " + machine.id, .target = path_of(machine), .accepted = {404}},
      deadline);
  if (response.status == 404) return {Phase::gone, "gone", {}};
  const json::value value = parse_answer(response.body);
  const JsonObject& object = object_in(value, "the sandbox");
  require_part_of_volume(object);
  remember(machine.id, object);
  const std::string state = text_field(object, "state");
  return {phase_of(state), printable(state), printable(text_field(object, "errorReason"))};
}

Daytona::Look Daytona::settle(const Machine& machine,
                              const std::function<bool(const Look&)>& settled, Deadline deadline) {
  for (std::chrono::milliseconds pause = kFirstPoll;; pause = std::min(pause * 2, kLongestPoll)) {
    const Look seen = look(machine, deadline);
    if (seen.phase == Phase::failed) {
      throw Error(Code::unavailable,
                  "daytona: sandbox " + machine.id +
                      " failed: " + (seen.reason.empty() ? "state " + seen.state : seen.reason),
                  "check it in Daytona's dashboard, or delete it there");
    }
    if (settled(seen)) return seen;
    if (std::chrono::steady_clock::now() + pause >= deadline) {
      throw Error(Code::deadline_exceeded,
                  "daytona: sandbox " + machine.id + " is still " + seen.state,
                  "try again later, or check it in Daytona's dashboard");
    }
    std::this_thread::sleep_for(pause);
  }
}

MachineState Daytona::state(const Machine& machine, Deadline deadline) {
  const Look seen = settle(
      machine, [](const Look& one) { return one.phase != Phase::changing; }, deadline);
  if (seen.phase == Phase::gone) return MachineState::gone;
  return seen.phase == Phase::paused ? MachineState::paused : MachineState::running;
}

// 400 and 409: it is there already, or still changes; the next look shows which.
void Daytona::verb(const Machine& machine, const std::string& name, Deadline deadline) {
  api_.call({.what = name + " sandbox " + machine.id,
             .method = "POST",
             .target = path_of(machine) + "/" + name,
             .accepted = {400, 409},
             .attempt = kCreateAttempt},
            deadline);
}

void Daytona::resume(const Machine& machine, Deadline deadline) {
  settle(
      machine,
      [&](const Look& seen) {
        if (seen.phase == Phase::gone)
          throw Error(Code::not_found, "daytona: sandbox " + machine.id + " is " + seen.state);
        if (seen.phase == Phase::paused) verb(machine, "start", deadline);
        return seen.phase == Phase::running;
      },
      deadline);
}

void Daytona::pause(const Machine& machine, Deadline deadline) {
  settle(
      machine,
      [&](const Look& seen) {
        if (seen.phase == Phase::running) verb(machine, "stop", deadline);
        return seen.phase == Phase::paused || seen.phase == Phase::gone;
      },
      deadline);
}

void Daytona::extend(const Machine& machine, std::chrono::seconds life, Deadline deadline) {
  const int64_t minutes = std::min<int64_t>(life.count() / 60 + 1, kLongestStopMin);
  int64_t known = settings_.auto_stop_min;
  {
    const std::lock_guard lock(mutex_);
    const auto found = auto_stops_.find(machine.id);
    if (found != auto_stops_.end()) known = found->second;
  }
  if (minutes > known) {
    api_.call({.what = "keep sandbox " + machine.id + " alive",
               .method = "POST",
               .target = path_of(machine) + "/autostop/" + std::to_string(minutes),
               .waits_for_conflict = true},
              deadline);
    const std::lock_guard lock(mutex_);
    auto_stops_[machine.id] = minutes;
  }
  const HttpResponse response = api_.call({.what = "keep sandbox " + machine.id + " alive",
                                           .method = "POST",
                                           .target = path_of(machine) + "/last-activity",
                                           .accepted = {404, 405}},
                                          deadline);
  // A server without it: calls of the toolbox are activity.
  if (response.status >= 400) {
    toolbox_of(machine, cancel_, deadline)
        ->call({.what = "keep sandbox " + machine.id + " alive", .target = "/work-dir"}, deadline);
  }
}

// A server that does not know names would ignore them and open everything, so its answer counts.
void Daytona::let_out(const Machine& machine, const base::ProviderRules& rules, Deadline deadline) {
  std::string names;
  for (const std::string& pattern : host_patterns(rules))
    names += (names.empty() ? "" : ",") + pattern;
  const auto set = [&](bool blocked, const std::string& allowed) {
    const JsonObject network{
        {"networkBlockAll", blocked}, {"networkAllowList", ""}, {"domainAllowList", allowed}};
    return api_.call({.what = "set the network of sandbox " + machine.id,
                      .method = "POST",
                      .target = path_of(machine) + "/network-settings",
                      .body = boost::json::serialize(network),
                      .waits_for_conflict = true,
                      .accepted = {404, 405}},
                     deadline);
  };
  const HttpResponse response = set(false, names);
  if (response.status < 400) {
    const boost::json::value value = parse_answer(response.body);
    if (text_field(object_in(value, "the sandbox"), "domainAllowList") == names) return;
    set(true, "");
  }
  throw Error(Code::unsupported, "daytona: this server cannot let a sandbox reach some hosts only",
              "use a snapshot that allows user namespaces, or network none without rules");
}

void Daytona::end(const Machine& machine, Deadline deadline) {
  api_.call({.what = "delete sandbox " + machine.id,
             .method = "DELETE",
             .target = path_of(machine),
             .waits_for_conflict = true,
             .accepted = {404},
             .attempt = kCreateAttempt},
            deadline);
  const std::lock_guard lock(mutex_);
  toolboxes_.erase(machine.id);
  auto_stops_.erase(machine.id);
}

std::unique_ptr<ProviderApi> Daytona::toolbox_of(const Machine& machine, const Cancel& cancel,
                                                 Deadline deadline) {
  std::string url = settings_.toolbox_url;
  const auto remembered = [&] {
    const std::lock_guard lock(mutex_);
    const auto found = toolboxes_.find(machine.id);
    return found == toolboxes_.end() ? std::string() : found->second;
  };
  if (url.empty()) url = remembered();
  if (url.empty()) {
    look(machine, deadline);
    url = remembered();
  }
  if (url.empty()) {
    const HttpResponse response = api_.call({.what = "find the toolbox of " + machine.id,
                                             .target = path_of(machine) + "/toolbox-proxy-url"},
                                            deadline);
    const json::value value = parse_answer(response.body);
    url = text_field(object_in(value, "the toolbox's URL"), "url");
    const std::lock_guard lock(mutex_);
    toolboxes_[machine.id] = url;
  }
  Origin origin = parse_origin(url, settings_.allow_plain_http);
  origin.prefix += "/" + machine.id;
  return std::make_unique<ProviderApi>(ApiOptions{kProvider, origin, trust_, headers_}, cancel);
}

std::unique_ptr<Run> Daytona::run(const Machine& machine, const std::vector<std::string>& argv,
                                  Deadline deadline) {
  auto cancel = std::make_unique<Cancel>();
  RunApis toolbox{toolbox_of(machine, *cancel, deadline), std::make_unique<const Cancel>(),
                  nullptr};
  toolbox.release = toolbox_of(machine, *toolbox.never, deadline);
  auto stream = std::make_unique<SessionStream>(std::move(toolbox), argv, deadline);
  return std::make_unique<StreamRun>(std::move(cancel), std::move(stream));
}

void Daytona::put(const Machine& machine, const File& file, Deadline deadline) {
  Shell shell(*this, machine, deadline);
  put_file(shell, file, deadline);
}

}  // namespace

std::unique_ptr<Driver> make_daytona_driver(const DriverOptions& options) {
  return std::make_unique<Daytona>(options);
}

}  // namespace moorage::link
