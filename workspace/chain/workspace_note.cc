#include "workspace/chain/workspace_note.h"

#include <boost/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"

namespace moorage::workspace {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxBytes = 1 << 20;
constexpr int64_t kFormat = 1;

std::string place(const std::string& store, base::WorkspaceId id) {
  return store + "/workspaces/" + id.str();
}

About about_of(Context& context, const state_db::WorkspaceRow& row) {
  const auto repo = state_db::RepositoryTable(context.store).get(row.repository);
  About about;
  about.id = row.id;
  about.store = context.store.store_id();
  about.name = row.name;
  about.owner_uid = row.owner_uid;
  about.team_gid = row.team_gid;
  about.repository = row.repository;
  about.repo_name = repo.name;
  about.repo_url = repo.url;
  about.base_ref = row.base_ref;
  about.base_commit = row.base_commit;
  about.branch = row.branch;
  about.created_wall_ms = row.created_wall_ms;
  for (const auto& layer : state_db::LayerTable(context.store).chain(row.layer))
    about.layers.push_back(layer.id);
  return about;
}

std::string text_of(const json::object& object, const char* name) {
  return std::string(object.at(name).as_string());
}

template <typename Id>
Id id_of(const json::value& value) {
  return Id::parse(std::string(value.as_string())).value();
}

bool is_written(const std::string& path, const std::string& text) {
  try {
    return base::read_file_if_exists(path, kMaxBytes) == text;
  } catch (const base::Error&) {
    return false;  // unreadable: rewrite it
  }
}

}  // namespace

std::string about_path(const std::string& store, base::WorkspaceId id) {
  return place(store, id) + "/about.json";
}

std::string write_about_text(const About& about) {
  json::array layers;
  for (const auto& layer : about.layers) layers.emplace_back(layer.str());
  json::object object{
      {"format", kFormat},
      {"id", about.id.str()},
      {"store", about.store},
      {"name", about.name},
      {"owner_uid", about.owner_uid},
      {"repository",
       {{"id", about.repository.str()}, {"name", about.repo_name}, {"url", about.repo_url}}},
      {"base_ref", about.base_ref},
      {"base_commit", about.base_commit},
      {"branch", about.branch},
      {"layers", std::move(layers)},
      {"created_at", base::format_utc(about.created_wall_ms)},
      {"created_wall_ms", about.created_wall_ms}};
  if (about.team_gid) object["team_gid"] = *about.team_gid;
  return json::serialize(object) + "\n";
}

std::optional<About> parse_about(std::string_view text) {
  try {
    json::parse_options options;
    options.max_depth = 8;
    options.allow_invalid_utf8 = true;  // a ref may contain any bytes
    const json::value whole = json::parse({text.data(), text.size()}, {}, options);
    const json::object& object = whole.as_object();
    About about;
    about.id = id_of<base::WorkspaceId>(object.at("id"));
    about.store = text_of(object, "store");
    about.name = text_of(object, "name");
    about.owner_uid = json::value_to<uint32_t>(object.at("owner_uid"));
    if (const json::value* team = object.if_contains("team_gid"))
      about.team_gid = json::value_to<uint32_t>(*team);
    const json::object& repository = object.at("repository").as_object();
    about.repository = id_of<base::RepoId>(repository.at("id"));
    about.repo_name = text_of(repository, "name");
    about.repo_url = text_of(repository, "url");
    about.base_ref = text_of(object, "base_ref");
    about.base_commit = text_of(object, "base_commit");
    about.branch = text_of(object, "branch");
    for (const json::value& layer : object.at("layers").as_array())
      about.layers.push_back(id_of<base::LayerId>(layer));
    about.created_wall_ms = json::value_to<int64_t>(object.at("created_wall_ms"));
    return about;
  } catch (const std::exception&) {
    return std::nullopt;  // after a power cut the file may exist without its contents
  }
}

std::optional<About> read_about(const std::string& store, base::WorkspaceId id) {
  try {
    const auto text = base::read_file_if_exists(about_path(store, id), kMaxBytes);
    auto about = text ? parse_about(*text) : std::nullopt;
    if (about && about->id != id) about.reset();
    return about;
  } catch (const base::Error&) {
    return std::nullopt;  // treat an unreadable note as missing
  }
}

void keep_about(Context& context, const state_db::WorkspaceRow& row) {
  try {
    const std::string path = about_path(context.options.store, row.id);
    const std::string text = write_about_text(about_of(context, row));
    if (is_written(path, text)) return;
    base::make_directories(place(context.options.store, row.id));
    base::write_file(path, text);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::warning, "workspace.no_note",
              {{"ws", row.id}, {"error", error.message()}});
  }
}

}  // namespace moorage::workspace
