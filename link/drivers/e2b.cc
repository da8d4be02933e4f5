#include "link/drivers/e2b.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/wire/text_stream.h"
#include "link/drivers/envd_stream.h"
#include "link/drivers/host_patterns.h"
#include "link/drivers/json_reader.h"
#include "link/drivers/machine_search.h"
#include "link/drivers/provider_api.h"
#include "link/drivers/remote_shell.h"
#include "link/drivers/stream_run.h"
#include "link/retry.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr const char* kProvider = "e2b";
constexpr const char* kEnvdPort = "49983";
constexpr std::chrono::seconds kExtendEvery{60};
constexpr std::chrono::seconds kCreateAttempt{120};
constexpr int kResumed = 201;  // of `connect`; 200: it ran
constexpr size_t kPage = 100;
constexpr size_t kMaxPages = 50;
constexpr size_t kMaxToken = 4 << 10;
constexpr size_t kMaxOutput = 64 << 10;  // of a command that prepares

struct Settings {
  Origin api;
  std::string sandbox_url;
  std::string domain;
  std::string template_id;
  std::string user;
  std::string directory;
  std::string ca_file;
  bool allow_plain_http = false;
  bool pauses = false;
  bool internet = true;
  int64_t life_s = 300;
};

Settings read_settings(const std::string& text) {
  const json::value value = parse_answer(text.empty() ? "{}" : text);
  const JsonObject& object = object_in(value, "the settings of e2b");
  Settings settings;
  settings.allow_plain_http = flag_field(object, "allow_plain_http", false);
  settings.api =
      parse_origin(text_field(object, "api_url", "https://api.e2b.app"), settings.allow_plain_http);
  settings.sandbox_url = text_field(object, "sandbox_url");
  if (!settings.sandbox_url.empty()) parse_origin(settings.sandbox_url, settings.allow_plain_http);
  const std::string& host = settings.api.host;
  settings.domain = text_field(object, "domain", host.starts_with("api.") ? host.substr(4) : host);
  settings.template_id = text_field(object, "template", "base");
  settings.user = text_field(object, "user", "root");
  settings.directory = text_field(object, "directory");
  settings.ca_file = text_field(object, "ca_file");
  settings.pauses = text_field(object, "on_stop") == "pause";
  settings.internet = flag_field(object, "internet", true);
  settings.life_s = std::clamp<int64_t>(number_field(object, "life_s", 300), 60, 86'400);
  return settings;
}

// A query string within a query value, whose names and values the server decodes once more: they
// are escaped three times in all.
std::string metadata_query(const Labels& labels) {
  std::string inner;
  for (const auto& [name, value] : labels) {
    inner += (inner.empty() ? "" : "&") + percent_encode(percent_encode(name)) + "=" +
             percent_encode(percent_encode(value));
  }
  return percent_encode(inner);
}

std::optional<MachineState> known_state(std::string_view text) {
  if (text == "running") return MachineState::running;
  if (text == "paused") return MachineState::paused;
  return std::nullopt;
}

class E2b : public Driver {
 public:
  explicit E2b(const DriverOptions& options);
  ~E2b() override { cancel_.cancel(); }

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
  struct Access {
    std::string token;
    std::string domain;
  };
  class Shell;

  MachineSearch search(const Labels& labels, Deadline deadline);
  Machine create(const Labels& labels, Deadline deadline);
  Machine awake(Machine machine, Deadline deadline);
  bool wake(const Machine& machine, Deadline deadline);  // whether it was paused
  HttpResponse connect(const Machine& machine, int64_t life_s, Deadline deadline);
  Access remember(const std::string& id, const JsonObject& object);
  Access access_to(const Machine& machine, Deadline deadline);
  std::unique_ptr<ProviderApi> envd_of(const Machine& machine, const Cancel& cancel,
                                       Deadline deadline);
  std::string path_of(const Machine& machine) const { return "/sandboxes/" + machine.id; }

  const Settings settings_;
  const Cancel cancel_;
  const Trust trust_;
  ProviderApi api_;
  std::mutex mutex_;
  std::map<std::string, Access> accesses_;  // by id; a new process asks for them
};

class E2b::Shell : public RemoteShell {
 public:
  Shell(E2b& driver, const Machine& machine) : driver_(driver), machine_(machine) {}

  Result execute(const std::string& script, Deadline deadline) override {
    EnvdStream stream({driver_.envd_of(machine_, driver_.cancel_, deadline), nullptr, nullptr},
                      {.argv = {"/bin/sh", "-c", script}}, deadline);
    Result result;
    std::string piece;
    while (stream.receive_until_end(piece, deadline)) {
      const size_t room = kMaxOutput - std::min(kMaxOutput, result.output.size());
      result.output += piece.substr(0, room);
    }
    result.exit_code = stream.end()->exit_code;
    return result;
  }

  void upload(const std::string& path, const std::string& bytes, Deadline deadline) override {
    const std::string boundary = "moorage-" + base::random_hex(16);
    driver_.envd_of(machine_, driver_.cancel_, deadline)
        ->call({.what = "put a file on the machine",
                .method = "POST",
                .target = target(path),
                .body = form_body({{"file", "file", bytes}}, boundary),
                .content_type = "multipart/form-data; boundary=" + boundary,
                .attempt = std::chrono::minutes(10)},
               deadline);
  }

  bool download(const std::string& path, const std::function<void(std::string_view)>& take,
                Deadline deadline) override {
    const auto envd = driver_.envd_of(machine_, driver_.cancel_, deadline);
    const ApiCall call{.what = "read a file of the machine", .target = target(path)};
    return download_body(*envd, call, take, deadline);
  }

 private:
  std::string target(const std::string& path) const {
    return "/files?path=" + percent_encode(path) +
           "&username=" + percent_encode(driver_.settings_.user);
  }

  E2b& driver_;
  const Machine& machine_;
};

E2b::E2b(const DriverOptions& options)
    : settings_(read_settings(options.settings)),
      trust_(make_trust(settings_.ca_file)),
      api_({kProvider, settings_.api, trust_, {{"X-API-KEY", options.key}}}, cancel_) {}

std::vector<Machine> E2b::find(const Labels& labels, Deadline deadline) {
  std::vector<Machine> machines;
  std::string version = "/v2";
  std::string next;
  for (size_t page = 0; page < kMaxPages; ++page) {
    std::string query = "?metadata=" + metadata_query(labels);
    if (!version.empty()) query += "&state=running,paused&limit=" + std::to_string(kPage);
    if (!next.empty()) query += "&nextToken=" + percent_encode(next);
    const HttpResponse response =
        api_.call({.what = "list sandboxes",
                   .target = version + "/sandboxes" + query,
                   .accepted = version.empty() ? std::vector<int>{} : std::vector<int>{404, 405}},
                  deadline);
    if (response.status >= 400) {  // an older server
      version.clear();
      continue;
    }
    const json::value value = parse_answer(response.body);
    if (!value.is_array()) throw Error(Code::corrupted, "e2b: the list of sandboxes is no array");
    for (const json::value& one : value.get_array()) {
      const JsonObject& object = object_in(one, "a sandbox");
      Machine machine{id_field(object, "sandboxID"),
                      MachineState::running,
                      labels_field(object, "metadata"),
                      {}};
      machine.state = known_state(text_field(object, "state")).value_or(MachineState::running);
      if (has_labels(machine.labels, labels)) machines.push_back(std::move(machine));
    }
    next = response.headers.get("x-next-token");
    if (next.empty() || version.empty()) return machines;
    if (next.size() > kMaxToken) throw Error(Code::corrupted, "e2b: a page's token is too long");
  }
  throw Error(Code::corrupted, "e2b: the list of sandboxes does not end");
}

Machine E2b::create(const Labels& labels, Deadline deadline) {
  JsonObject metadata;
  for (const auto& [name, value] : labels) metadata[name] = value;
  JsonObject request{{"templateID", settings_.template_id},
                     {"metadata", metadata},
                     {"timeout", settings_.life_s},
                     {"autoPause", settings_.pauses},
                     {"allow_internet_access", settings_.internet}};
  ApiCall call{.what = "create a sandbox of template " + settings_.template_id,
               .method = "POST",
               .target = "/v2/sandboxes",
               .body = json::serialize(request),
               .may_repeat = false,
               .accepted = {404, 405},
               .attempt = kCreateAttempt};
  HttpResponse response = api_.call(call, deadline);
  if (response.status >= 400) {  // an older server, or an unknown template
    request["secure"] = true;    // or envd would need no token
    call.target = "/sandboxes";
    call.body = json::serialize(request);
    call.accepted.clear();
    response = api_.call(call, deadline);
  }
  const json::value value = parse_answer(response.body);
  const JsonObject& object = object_in(value, "the new sandbox");
  Machine machine{id_field(object, "sandboxID"), MachineState::running, labels, {}};
  remember(machine.id, object);
  return machine;
}

MachineSearch E2b::search(const Labels& labels, Deadline deadline) {
  MachineSearch search;
  search.find = [=, this] { return find(labels, deadline); };
  search.create = [=, this] { return create(labels_now(labels), deadline); };
  search.end = [=, this](const Machine& machine) { end(machine, deadline); };
  return search;
}

Machine E2b::make(const Labels& labels, Deadline deadline) {
  return awake(find_or_create(search(labels, deadline), deadline), deadline);
}

Machine E2b::reach(const Labels& labels, Deadline deadline) {
  return awake(find_existing(search(labels, deadline), deadline), deadline);
}

Machine E2b::awake(Machine machine, Deadline deadline) {
  // Also for one that runs: it may be about to end, or is paused in spite of what the list says.
  const bool was_paused = wake(machine, deadline);
  machine.resumed =
      std::exchange(machine.state, MachineState::running) == MachineState::paused || was_paused;
  Shell shell(*this, machine);
  machine.directory = make_directory(shell, settings_.directory, deadline);
  return machine;
}

// In place of the rules with which it was made. Entries that allow come before those that deny.
void E2b::let_out(const Machine& machine, const base::ProviderRules& rules, Deadline deadline) {
  const JsonObject network{{"allowOut", json::value_from(host_patterns(rules))},
                           {"denyOut", json::array{"0.0.0.0/0"}}};
  const HttpResponse response = api_.call({.what = "set the network of sandbox " + machine.id,
                                           .method = "PUT",
                                           .target = path_of(machine) + "/network",
                                           .body = json::serialize(network),
                                           .waits_for_conflict = true,
                                           .accepted = {404, 405}},
                                          deadline);
  if (response.status >= 400) {
    throw Error(Code::unsupported, "e2b: this server cannot let a sandbox reach some hosts only",
                "use a template that allows user namespaces, or network none without rules");
  }
}

MachineState E2b::state(const Machine& machine, Deadline deadline) {
  const HttpResponse response = api_.call(
      {.what = "look up sandbox " + machine.id, .target = path_of(machine), .accepted = {404}},
      deadline);
  if (response.status == 404) return MachineState::gone;
  const json::value value = parse_answer(response.body);
  const JsonObject& object = object_in(value, "the sandbox");
  remember(machine.id, object);
  const std::string text = text_field(object, "state");
  if (const auto known = known_state(text)) return *known;
  throw Error(Code::unavailable, "e2b: sandbox " + machine.id + " is " + printable(text),
              "try again later");
}

// Extends and never shortens; resumes a paused one.
HttpResponse E2b::connect(const Machine& machine, int64_t life_s, Deadline deadline) {
  ApiCall call{.what = "keep sandbox " + machine.id + " alive",
               .method = "POST",
               .target = {},
               .body = json::serialize(JsonObject{{"timeout", life_s}}),
               .waits_for_conflict = true,
               .accepted = {404, 405},
               .attempt = kCreateAttempt};
  for (const char* version : {"/v2", ""}) {
    call.target = version + path_of(machine) + "/connect";
    HttpResponse response = api_.call(call, deadline);
    if (response.status < 400) return response;
  }
  // A server without `connect`. This may shorten its life, but each call is for as long again.
  call.target = path_of(machine) + "/timeout";
  call.accepted.clear();
  return api_.call(call, deadline);
}

void E2b::extend(const Machine& machine, std::chrono::seconds life, Deadline deadline) {
  const HttpResponse response =
      connect(machine, std::clamp<int64_t>(life.count(), 60, 86'400), deadline);
  if (response.status == kResumed)
    throw Error(Code::conflict, "e2b: sandbox " + machine.id + " was paused by its provider");
}

void E2b::resume(const Machine& machine, Deadline deadline) { wake(machine, deadline); }

bool E2b::wake(const Machine& machine, Deadline deadline) {
  const HttpResponse response = connect(machine, settings_.life_s, deadline);
  if (!response.body.empty()) {
    const json::value value = parse_answer(response.body);
    if (value.is_object()) remember(machine.id, value.get_object());
  }
  return response.status == kResumed;
}

void E2b::pause(const Machine& machine, Deadline deadline) {
  const ApiCall call{.what = "pause sandbox " + machine.id,
                     .method = "POST",
                     .target = path_of(machine) + "/pause",
                     .body = "{}",
                     .accepted = {409},
                     .attempt = kCreateAttempt};
  for (Retry retry(deadline);;) {
    const HttpResponse response = api_.call(call, deadline);
    // 409: it is paused already, or changes its state.
    if (response.status < 400 || state(machine, deadline) == MachineState::paused) return;
    retry.wait(api_.failure(call.what, response));
  }
}

void E2b::end(const Machine& machine, Deadline deadline) {
  api_.call({.what = "end sandbox " + machine.id,
             .method = "DELETE",
             .target = path_of(machine),
             .waits_for_conflict = true,
             .accepted = {404}},
            deadline);
  const std::lock_guard lock(mutex_);
  accesses_.erase(machine.id);
}

E2b::Access E2b::remember(const std::string& id, const JsonObject& object) {
  const std::lock_guard lock(mutex_);
  Access& access = accesses_[id];
  const std::string token = text_field(object, "envdAccessToken");
  if (!token.empty()) access.token = token;  // some answers leave it out
  access.domain = text_field(object, "domain", settings_.domain);
  return access;
}

E2b::Access E2b::access_to(const Machine& machine, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = accesses_.find(machine.id);
    if (found != accesses_.end()) return found->second;
  }
  const HttpResponse response =
      api_.call({.what = "look up sandbox " + machine.id, .target = path_of(machine)}, deadline);
  const json::value value = parse_answer(response.body);
  return remember(machine.id, object_in(value, "the sandbox"));
}

std::unique_ptr<ProviderApi> E2b::envd_of(const Machine& machine, const Cancel& cancel,
                                          Deadline deadline) {
  const Access access = access_to(machine, deadline);
  std::string url = settings_.sandbox_url;
  if (url.empty()) url = "https://" + (kEnvdPort + ("-" + machine.id)) + "." + access.domain;
  ApiOptions options{kProvider,
                     parse_origin(url, settings_.allow_plain_http),
                     trust_,
                     {{"E2b-Sandbox-Id", machine.id},
                      {"E2b-Sandbox-Port", kEnvdPort},
                      {"Authorization", "Basic " + base::base64_text(settings_.user + ":")}}};
  if (!access.token.empty()) options.headers.emplace_back("X-Access-Token", access.token);
  return std::make_unique<ProviderApi>(std::move(options), cancel);
}

std::unique_ptr<Run> E2b::run(const Machine& machine, const std::vector<std::string>& argv,
                              Deadline deadline) {
  auto cancel = std::make_unique<Cancel>();
  RunApis envd{envd_of(machine, *cancel, deadline), std::make_unique<const Cancel>(), nullptr};
  envd.release = envd_of(machine, *envd.never, deadline);
  // Servers differ in what they say of a missing program; a shell's exit code is the same.
  EnvdProgram program{{"/bin/sh", "-c", "exec \"$0\" \"$@\""}, true};
  program.argv.insert(program.argv.end(), argv.begin(), argv.end());
  auto stream = std::make_unique<EnvdStream>(std::move(envd), program, deadline);
  return std::make_unique<StreamRun>(std::move(cancel), std::move(stream));
}

void E2b::put(const Machine& machine, const File& file, Deadline deadline) {
  Shell shell(*this, machine);
  put_file(shell, file, deadline);
}

}  // namespace

std::unique_ptr<Driver> make_e2b_driver(const DriverOptions& options) {
  return std::make_unique<E2b>(options);
}

}  // namespace moorage::link
