#include "daemon/json/json_object.h"

namespace moorage::daemon {

std::string event_json(const state_db::Event& event) {
  JsonObject object{{"seq", event.seq}, {"kind", event.kind}};
  put_time(object, "at", event.wall_ms);
  if (event.subject.repository) object["repo"] = event.subject.repository.str();
  if (event.subject.workspace) object["workspace"] = event.subject.workspace.str();
  if (event.subject.sandbox) object["sandbox"] = event.subject.sandbox.str();
  if (event.subject.exec) object["exec"] = event.subject.exec.str();
  if (event.subject.snapshot) object["snapshot"] = event.subject.snapshot.str();
  put_text(object, "from", event.from);
  put_text(object, "to", event.to);
  put_text(object, "text", event.text);
  return text_of(object);
}

namespace {

JsonObject replica_object(const workspace::ReplicaStatus& status) {
  JsonObject object{{"directory", lossy_utf8(status.directory)},
                    {"state", workspace::replica_state_name(status.state)}};
  if (status.behind_ms) object["behind_s"] = *status.behind_ms / 1000;
  put_time(object, "as_of", status.copied_wall_ms);
  put_text(object, "problem", status.problem);
  put_text(object, "hint", status.hint);
  if (!status.notes.empty()) object["notes"] = texts_of(status.notes);
  return object;
}

JsonObject place_object(const backends::PlaceUse& place) {
  JsonObject object{
      {"name", lossy_utf8(place.name)}, {"sandboxes", place.used}, {"max_sandboxes", place.most}};
  if (place.last_contact_wall_ms) put_time(object, "last_contact", place.last_contact_wall_ms);
  put_text(object, "overlay", place.overlay);
  if (!place.overlay.empty()) object["limits"] = texts_of(place.limits);
  put_text(object, "on_stop", place.on_stop);
  if (place.paused > 0) object["paused"] = place.paused;
  put_text(object, "not_paused", place.not_paused);
  if (place.sent_again > 0) object["sent_again"] = place.sent_again;
  put_text(object, "last_error", place.last_error);
  return object;
}

}  // namespace

std::string info_json(const InfoView& info) {
  boost::json::array checks = array_of(info.checks, [](const backends::Check& check) {
    return JsonObject{{"name", check.name},
                      {"ok", check.ok},
                      {"text", lossy_utf8(check.text)},
                      {"hint", lossy_utf8(check.hint)}};
  });
  boost::json::array backends = array_of(info.backends, [&](const auto& backend) {
    const auto& [name, can] = backend;
    JsonObject runtimes;
    for (const auto& [runtime, isolation] : can.runtimes)
      runtimes[lossy_utf8(runtime)] = backends::isolation_name(isolation);
    JsonObject told{{"name", name},
                    {"usable", can.usable},
                    {"reason", lossy_utf8(can.reason)},
                    {"isolation", backends::isolation_name(can.isolation)}};
    if (!runtimes.empty()) told["runtimes"] = std::move(runtimes);
    if (const auto found = info.places.find(name); found != info.places.end())
      told["hosts"] = array_of(found->second, place_object);
    return told;
  });
  boost::json::array rules = array_of(info.own_rules, [](const workspace::PlacementRule& rule) {
    return JsonObject{{"name", lossy_utf8(rule.name)}, {"text", lossy_utf8(rule.text)}};
  });
  JsonObject object{{"version", info.version},
                    {"pid", info.pid},
                    {"store_id", info.store_id},
                    {"store", lossy_utf8(info.store)},
                    {"kernel", info.kernel},
                    {"cgroup", info.cgroup},
                    {"checks", std::move(checks)},
                    {"backends", std::move(backends)},
                    {"space", free_object(info.space)},
                    {"counts",
                     {{"workspaces", info.workspaces},
                      {"sandboxes", info.sandboxes},
                      {"execs_running", info.execs_running}}}};
  if (info.rules) object["policy"] = {{"rules", *info.rules}, {"yours", std::move(rules)}};
  if (info.replica) object["replica"] = replica_object(*info.replica);
  put_text(object, "rescue", info.rescue);
  return text_of(object);
}

std::string rescued_json(const std::vector<workspace::RescuedWorkspace>& found,
                         const StoreSpace& space, const std::string& why) {
  auto list = array_of(found, [](const auto& one) {
    JsonObject object{{"id", one.id}, {"name", one.id}, {"rescued", true}};
    if (const auto& about = one.about) {
      object["name"] = lossy_utf8(about->name);
      object["owner"] = about->owner_uid;
      object["owner_name"] = workspace::user_name(about->owner_uid);
      object["access"] = about->team_gid ? "team" : "private";
      object["repo"] = {{"id", about->repository.str()},
                        {"name", lossy_utf8(about->repo_name)},
                        {"url", lossy_utf8(about->repo_url)}};
      object["base"] = {{"ref", lossy_utf8(about->base_ref)}, {"commit", about->base_commit}};
      object["branch"] = lossy_utf8(about->branch);
      put_time(object, "created_at", about->created_wall_ms);
    }
    object["layers"] = ids_of(one.layers);
    if (!one.lost_layers.empty()) object["lost_layers"] = ids_of(one.lost_layers);
    put_text(object, "archive", one.archive);
    put_known(object, "disk_bytes", one.bytes);
    return object;
  });
  return text_of({{"workspaces", std::move(list)},
                  {"rescue", lossy_utf8(why)},
                  {"store", store_object(space)}});
}

std::string diagnosis_json(const workspace::Diagnosis& diagnosis, const std::string& storage) {
  auto findings = array_of(diagnosis.findings, [](const auto& finding) {
    JsonObject object{{"check", finding.check},
                      {"severity", workspace::severity_name(finding.severity)},
                      {"subject", lossy_utf8(finding.subject)},
                      {"text", lossy_utf8(finding.text)},
                      {"mended", finding.repaired}};
    put_text(object, "mend", finding.mend);
    put_text(object, "command", finding.command);
    return object;
  });
  JsonObject object{{"clean", diagnosis.clean()}, {"findings", std::move(findings)}};
  put_text(object, "storage", storage);
  return text_of(object);
}

std::string reload_json(const ReloadView& done) {
  return text_of({{"rules", done.rules}, {"need_restart", texts_of(done.need_restart)}});
}

std::string settings_json(const std::vector<SettingView>& settings) {
  return boost::json::serialize(array_of(settings, [](const auto& setting) {
    JsonObject object{{"name", setting.name}, {"value", lossy_utf8(setting.value)}};
    put_text(object, "unit", setting.unit);
    object["source"] = setting.source;
    object["help"] = setting.help;
    return object;
  }));
}

}  // namespace moorage::daemon
