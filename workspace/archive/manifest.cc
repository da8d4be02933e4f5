#include "workspace/archive/manifest.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>
#include <type_traits>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"
#include "state_db/tables/exec_category.h"
#include "state_db/word_list.h"
#include "workspace/context/checks.h"

namespace moorage::workspace {
namespace {

namespace json = boost::json;
using state_db::ExecState;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Code::invalid_argument, what, "moorage did not write this archive");
}

// JSON strings cannot hold arbitrary bytes, so those are in hexadecimal.
std::string from_hex(const json::string& hex) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    refuse("the archive has a field that is not hexadecimal");
  };
  if (hex.size() % 2 != 0) refuse("the archive has a field that is not hexadecimal");
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return bytes;
}

// Parses with limits on depth and size. Missing fields and wrong types all give the same error.
template <typename Read>
auto parsed(std::string_view text, const char* what, const Read& read) {
  try {
    json::parse_options options;
    options.max_depth = 8;
    return read(json::parse({text.data(), text.size()}, {}, options).as_object());
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    refuse(std::string(what) + " in the archive cannot be parsed");
  }
}

std::string text_of(const json::object& object, const char* name) {
  return std::string(object.at(name).as_string());
}

json::object policy_object(const state_db::WorkspacePolicy& policy) {
  json::object object;
  state_db::each_policy_field(
      [&](const char* name, const auto& field) { object[name] = json::value_from(field); }, policy);
  return object;
}

// A field that an older writer did not have keeps its default.
state_db::WorkspacePolicy policy_of(const json::object& object) {
  state_db::WorkspacePolicy policy;
  state_db::each_policy_field(
      [&](const char* name, auto& field) {
        using T = std::remove_reference_t<decltype(field)>;
        if (const json::value* value = object.if_contains(name)) field = json::value_to<T>(*value);
      },
      policy);
  return policy;
}

json::object workspace_object(const state_db::WorkspaceRow& row) {
  json::object labels;
  for (const auto& [name, value] : row.labels) labels[name] = value;
  json::object object{{"id", row.id.str()},           {"name", row.name},
                      {"owner_uid", row.owner_uid},   {"branch", row.branch},
                      {"base_ref", row.base_ref},     {"base_commit", row.base_commit},
                      {"backend", row.backend},       {"image", row.image},
                      {"disposable", row.disposable}, {"created_wall_ms", row.created_wall_ms},
                      {"labels", std::move(labels)},  {"policy", policy_object(row.policy)}};
  if (!row.head_commit.empty()) object["head_commit"] = row.head_commit;
  if (!row.raw_commit.empty()) object["raw_commit"] = row.raw_commit;
  if (!row.moved_commit.empty()) object["moved_commit"] = row.moved_commit;
  return object;
}

state_db::WorkspaceRow workspace_of(const json::object& object) {
  state_db::WorkspaceRow row;
  row.id = base::WorkspaceId::parse(text_of(object, "id")).value();
  row.name = text_of(object, "name");
  row.owner_uid = json::value_to<uint32_t>(object.at("owner_uid"));
  row.branch = text_of(object, "branch");
  row.base_ref = text_of(object, "base_ref");
  row.base_commit = text_of(object, "base_commit");
  if (object.contains("head_commit")) row.head_commit = text_of(object, "head_commit");
  if (object.contains("raw_commit")) row.raw_commit = text_of(object, "raw_commit");
  if (object.contains("moved_commit")) row.moved_commit = text_of(object, "moved_commit");
  row.backend = text_of(object, "backend");
  row.image = text_of(object, "image");
  row.disposable = object.at("disposable").as_bool();
  row.created_wall_ms = json::value_to<int64_t>(object.at("created_wall_ms"));
  for (const auto& [name, value] : object.at("labels").as_object()) {
    row.labels[std::string(name)] = std::string(value.as_string());
  }
  row.policy = policy_of(object.at("policy").as_object());
  return row;
}

template <typename T>
std::optional<T> number_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (!value || value->is_null()) return std::nullopt;
  return json::value_to<T>(*value);
}

// In format 1 this is a list of ids, each on top of the next.
json::array layers_array(const Manifest& manifest, int64_t format) {
  json::array layers;
  for (const auto& layer : manifest.layers) {
    if (format == 1) {
      layers.emplace_back(layer.id);
    } else {
      layers.push_back({{"id", layer.id}, {"below", json::value_from(layer.below)}});
    }
  }
  return layers;
}

std::vector<ManifestLayer> layers_of(const json::array& array, int64_t format) {
  if (array.empty() || array.size() > kMaxManifestLayers)
    refuse("the archive has " + std::to_string(array.size()) + " layers");
  std::vector<ManifestLayer> layers;
  for (size_t n = 0; n < array.size(); ++n) {
    ManifestLayer layer;
    if (format == 1) {
      layer.id = array[n].as_string();
      if (n + 1 < array.size()) layer.below = n + 1;
    } else {
      layer.id = text_of(array[n].as_object(), "id");
      layer.below = number_of<size_t>(array[n].as_object(), "below");
      if (layer.below && (*layer.below <= n || *layer.below >= array.size()))
        refuse("a layer in the archive has a parent that is not in it");
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_store_id(std::string_view text) { return is_hex(text, 8); }
bool is_object_id(std::string_view text) { return is_hex(text, 40); }

json::object snapshot_object(const ManifestSnapshot& snapshot) {
  json::object object{{"id", snapshot.id},
                      {"parent", json::value_from(snapshot.parent)},
                      {"layer", snapshot.layer},
                      {"name", snapshot.name},
                      {"external_id", snapshot.external_id},
                      {"cause", state_db::cause_name(snapshot.cause)},
                      {"exec", snapshot.exec ? snapshot.exec.str() : ""},
                      {"created_wall_ms", snapshot.created_wall_ms}};
  if (!snapshot.moved_commit.empty()) object["moved_commit"] = snapshot.moved_commit;
  return object;
}

ManifestSnapshot snapshot_of(const json::object& object, const Manifest& manifest) {
  ManifestSnapshot snapshot;
  snapshot.id = text_of(object, "id");
  snapshot.parent = number_of<size_t>(object, "parent");
  snapshot.layer = json::value_to<size_t>(object.at("layer"));
  snapshot.name = text_of(object, "name");
  snapshot.external_id = text_of(object, "external_id");
  // A cause that only a later release knows is read as manual.
  snapshot.cause =
      state_db::cause_from_name(text_of(object, "cause")).value_or(state_db::SnapshotCause::manual);
  snapshot.exec = base::ExecId::parse(text_of(object, "exec")).value_or(base::ExecId{});
  snapshot.created_wall_ms = json::value_to<int64_t>(object.at("created_wall_ms"));
  if (object.contains("moved_commit")) snapshot.moved_commit = text_of(object, "moved_commit");
  if (snapshot.layer == 0 || snapshot.layer >= manifest.layers.size() ||
      (snapshot.parent && *snapshot.parent >= manifest.snapshots.size()) ||
      (!snapshot.moved_commit.empty() && !is_object_id(snapshot.moved_commit)) ||
      snapshot.created_wall_ms < 0) {
    refuse("a snapshot in the archive has an invalid field");
  }
  return snapshot;
}

void read_history(const json::object& object, Manifest& manifest) {
  if (const json::value* snapshots = object.if_contains("snapshots")) {
    for (const auto& snapshot : snapshots->as_array())
      manifest.snapshots.push_back(snapshot_of(snapshot.as_object(), manifest));
  }
  manifest.stands_on = number_of<size_t>(object, "stands_on");
  if (manifest.stands_on && *manifest.stands_on >= manifest.snapshots.size())
    refuse("the workspace is based on a snapshot that the archive does not contain");
  if (const json::value* fork = object.if_contains("forked_from")) {
    state_db::ForkOrigin origin;
    const json::value* store = fork->as_object().if_contains("store");
    origin.store = store ? std::string(store->as_string()) : manifest.store;
    origin.workspace = base::WorkspaceId::parse(text_of(fork->as_object(), "workspace")).value();
    origin.snapshot = base::SnapshotId::parse(text_of(fork->as_object(), "snapshot")).value();
    origin.name = text_of(fork->as_object(), "name");
    manifest.forked_from = origin;
  }
  if (const json::value* image = object.if_contains("image")) {
    manifest.image = {text_of(image->as_object(), "id"), text_of(image->as_object(), "source")};
  }
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  const auto& repository = manifest.repository;
  const int64_t format = manifest.snapshots.empty() ? 1 : kArchiveFormat;
  json::object object{{"format", format},
                      {"moorage", MOORAGE_VERSION},
                      {"store", manifest.store},
                      {"made_wall_ms", manifest.made_wall_ms},
                      {"workspace", workspace_object(manifest.workspace)},
                      {"repository",
                       {{"url", repository.url},
                        {"fetch_url", repository.fetch_url},
                        {"scope", repository.scope},
                        {"name", repository.name},
                        {"default_branch", repository.default_branch}}},
                      {"layers", layers_array(manifest, format)}};
  json::array snapshots;
  for (const auto& snapshot : manifest.snapshots) snapshots.push_back(snapshot_object(snapshot));
  if (!snapshots.empty()) {
    object["snapshots"] = std::move(snapshots);
    object["stands_on"] = json::value_from(manifest.stands_on);
  }
  if (const auto& fork = manifest.forked_from) {
    object["forked_from"] = {{"store", fork->store},
                             {"workspace", fork->workspace.str()},
                             {"snapshot", fork->snapshot.str()},
                             {"name", fork->name}};
  }
  if (!manifest.image.id.empty())
    object["image"] = {{"id", manifest.image.id}, {"source", manifest.image.source}};
  return json::serialize(object) + "\n";
}

Manifest parse_manifest(const std::string& text) {
  return parsed(text, "the manifest", [](const json::object& object) {
    const auto format = json::value_to<int64_t>(object.at("format"));
    if (format < 1 || format > kArchiveFormat) {
      throw Error(Code::unsupported,
                  "the archive has format " + std::to_string(format) +
                      ", but this moorage reads only up to " + std::to_string(kArchiveFormat),
                  "use the moorage that wrote it, or a newer one");
    }
    Manifest manifest;
    manifest.store = text_of(object, "store");
    manifest.made_wall_ms = json::value_to<int64_t>(object.at("made_wall_ms"));
    manifest.workspace = workspace_of(object.at("workspace").as_object());
    const json::object& repository = object.at("repository").as_object();
    manifest.repository.url = text_of(repository, "url");
    manifest.repository.fetch_url = text_of(repository, "fetch_url");
    manifest.repository.scope = text_of(repository, "scope");
    manifest.repository.name = text_of(repository, "name");
    manifest.repository.default_branch = text_of(repository, "default_branch");
    manifest.layers = layers_of(object.at("layers").as_array(), format);
    read_history(object, manifest);
    // The writer escapes control characters or never writes them; people see these unescaped.
    const auto& fork = manifest.forked_from;
    const bool good_fork =
        !fork || (is_store_id(fork->store) && fork->name.size() <= 100 && !has_control(fork->name));
    const std::string& ref = manifest.workspace.base_ref;
    const bool good_ref = ref.size() <= 1024 && !has_control(ref) && !ref.starts_with('-');
    if (!is_store_id(manifest.store) || !good_fork || !good_ref ||
        !is_object_id(manifest.workspace.base_commit) ||
        !is_object_id(state_db::began_at(manifest.workspace)) ||
        !is_object_id(state_db::on_disk(manifest.workspace)) ||
        !is_object_id(state_db::compared_with(manifest.workspace)) ||
        has_control(manifest.image.id) || has_control(manifest.image.source)) {
      refuse("the manifest of the archive has an invalid field");
    }
    return manifest;
  });
}

std::string write_exec_line(const state_db::ExecRow& exec) {
  const auto& request = exec.request;
  const auto& outcome = exec.outcome;
  json::object line{
      {"id", exec.id.str()},
      {"argv", base::to_hex(state_db::encode_words(request.argv))},
      {"environment", base::to_hex(state_db::encode_word_map(request.environment))},
      {"directory", base::to_hex(request.directory)},
      {"user", request.user},
      {"terminal", request.terminal},
      {"input", request.input},
      {"timeout_ms", request.timeout_ms},
      {"state", state_db::state_name(exec.state)},
      {"cancel_requested", exec.cancel_requested},
      {"started_wall_ms", exec.started_wall_ms},
      {"ended_wall_ms", outcome.ended_wall_ms},
      {"category", outcome.category ? state_db::category_name(*outcome.category) : ""},
      {"error", base::escape_for_message(outcome.error)},
      {"output_bytes", outcome.output_bytes},
      {"omitted_bytes", outcome.omitted_bytes},
      {"user_ms", outcome.user_ms},
      {"system_ms", outcome.system_ms},
      {"max_rss_bytes", outcome.max_rss_bytes},
      {"imported_from", exec.imported_from}};
  if (outcome.exit_code) line["exit_code"] = *outcome.exit_code;
  if (outcome.signal) line["signal"] = *outcome.signal;
  if (exec.changed_files) line["changed_files"] = *exec.changed_files;
  if (!request.hook.empty()) line["hook"] = request.hook;
  if (request.merged) line["merged"] = true;
  return json::serialize(line) + "\n";
}

state_db::ExecRow parse_exec_line(std::string_view text) {
  return parsed(text, "a command", [](const json::object& line) {
    state_db::ExecRow exec;
    auto& request = exec.request;
    auto& outcome = exec.outcome;
    const auto number = [&line](const char* name) {
      const auto value = json::value_to<int64_t>(line.at(name));
      if (value < 0) refuse("a command in the archive has a negative number");
      return value;
    };
    const auto maybe_number = [&line](const char* name, auto& to) {
      if (const json::value* value = line.if_contains(name)) {
        to = json::value_to<typename std::remove_reference_t<decltype(to)>::value_type>(*value);
      }
    };
    exec.id = base::ExecId::parse(text_of(line, "id")).value();
    request.argv = state_db::decode_words(from_hex(line.at("argv").as_string()));
    request.environment = state_db::decode_word_map(from_hex(line.at("environment").as_string()));
    request.directory = from_hex(line.at("directory").as_string());
    request.user = text_of(line, "user");
    request.terminal = line.at("terminal").as_bool();
    request.input = line.at("input").as_bool();
    request.timeout_ms = number("timeout_ms");
    exec.state = state_db::state_from_name<ExecState>(text_of(line, "state")).value();
    exec.cancel_requested = line.at("cancel_requested").as_bool();
    exec.started_wall_ms = number("started_wall_ms");
    outcome.state = exec.state;
    outcome.ended_wall_ms = number("ended_wall_ms");
    outcome.category = state_db::category_from_name(text_of(line, "category"));
    outcome.error = text_of(line, "error");
    outcome.output_bytes = static_cast<uint64_t>(number("output_bytes"));
    outcome.omitted_bytes = static_cast<uint64_t>(number("omitted_bytes"));
    outcome.user_ms = number("user_ms");
    outcome.system_ms = number("system_ms");
    outcome.max_rss_bytes = static_cast<uint64_t>(number("max_rss_bytes"));
    exec.imported_from = text_of(line, "imported_from");
    if (line.if_contains("hook")) request.hook = text_of(line, "hook");
    if (line.if_contains("merged")) request.merged = line.at("merged").as_bool();
    maybe_number("exit_code", outcome.exit_code);
    maybe_number("signal", outcome.signal);
    maybe_number("changed_files", exec.changed_files);
    if (exec.state == ExecState::running || request.argv.empty() ||
        exec.imported_from.size() > 100 || request.user.size() > 100 ||
        (!request.hook.empty() && request.hook != "pre_stop") || has_control(outcome.error) ||
        has_control(request.user) || has_control(exec.imported_from)) {
      refuse("a command in the archive has an invalid field");
    }
    return exec;
  });
}

std::vector<std::string> ref_objects(std::string_view text) {
  std::set<std::string> found;
  while (!text.empty()) {
    std::string_view line = base::take_until(text, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with('^')) line.remove_prefix(1);
    const std::string_view oid = line.substr(0, 40);
    if (!is_object_id(oid)) refuse("the git references in the archive cannot be parsed");
    found.emplace(oid);
  }
  return {found.begin(), found.end()};
}

}  // namespace moorage::workspace
