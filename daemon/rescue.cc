#include "daemon/rescue.h"

#include <unistd.h>

#include "backends/probe.h"
#include "base/log.h"
#include "daemon/http/dispatcher.h"
#include "daemon/http/pipe_source.h"
#include "daemon/json/json_object.h"
#include "daemon/process_setup.h"
#include "workspace/recovery/rescue.h"

namespace moorage::daemon {
namespace {

using state_db::Trouble;
using state_db::Unreadable;
using workspace::Rescue;
using workspace::Right;
using workspace::Severity;

std::string sentence(const Unreadable& trouble) { return "rescue mode: " + trouble.what; }

Error refusal(const Unreadable& trouble) {
  return {Code::unavailable, sentence(trouble) + "; no command runs and nothing can change",
          "as root: run moorage doctor for advice, or moorage rescue export NAME FILE to save a "
          "workspace"};
}

std::string info_of(Rescue& rescue, const Unreadable& trouble, const std::string& store) {
  InfoView view;
  view.version = MOORAGE_VERSION;
  view.store = store;
  view.kernel = backends::kernel_release();
  view.cgroup = backends::cgroup_kind();
  view.checks.push_back({"state.db", false, trouble.what, trouble.hint});
  view.space = space_of(store);
  view.workspaces = rescue.count();
  view.rescue = sentence(trouble);
  return info_json(view);
}

std::string list_of(Rescue& rescue, const Unreadable& trouble, const std::string& store) {
  const auto found = rescue.list();
  StoreSpace space = space_of(store);
  for (const auto& one : found) space.used_bytes += one.bytes.value_or(0);
  return rescued_json(found, space, sentence(trouble));
}

std::string diagnosis_of(const Unreadable& trouble, const std::string& store) {
  workspace::Diagnosis diagnosis;
  const auto add = [&](Severity severity, const std::string& text, const std::string& command) {
    diagnosis.findings.push_back({.check = "database",
                                  .severity = severity,
                                  .subject = "state.db",
                                  .text = text,
                                  .mend = {},
                                  .command = command});
  };
  add(Severity::error, trouble.what, trouble.hint);
  if (trouble.trouble == Trouble::damaged) {
    for (const auto& problem :
         state_db::describe_damage(trouble.copy.empty() ? store : trouble.copy))
      add(Severity::error, problem, "");
  }
  if (!trouble.copy.empty())
    add(Severity::note, "an untouched copy of state.db is kept in " + trouble.copy, "");
  if (!trouble.no_copy.empty())
    add(Severity::warning, "state.db could not be copied: " + trouble.no_copy,
        "copy " + store + "/state.db* to another disk before doing anything else");
  if (trouble.trouble == Trouble::damaged && !trouble.copy.empty()) {
    add(Severity::note, "without an intact state.db, SQLite may still recover most of its rows",
        "sqlite3 " + trouble.copy + "/state.db .recover | sqlite3 " + store +
            "/state.db.recovered; check it, stop mooraged, and rename it to state.db");
  }
  add(Severity::note, "the files of the workspaces are on the disk, whatever happened to state.db",
      "moorage ls; moorage rescue export NAME FILE");
  return diagnosis_json(diagnosis, {});
}

void add_rescue_routes(Router& router, Rescue& rescue, const Unreadable& trouble,
                       const Settings& settings) {
  const auto add = [&](const std::string& pattern, std::function<Reply(const Request&)> answer,
                       std::vector<std::string> query = {}) {
    const Handler for_root = [&trouble, answer = std::move(answer)](const Request& request) {
      if (!request.caller.root()) throw refusal(trouble);
      return answer(request);
    };
    router.add({.method = "GET",
                .pattern = pattern,
                .access = Right::none,
                .handler = for_root,
                .query = std::move(query),
                .lane = Lane::slow});
  };
  const std::string& store = settings.store();
  add("/v1/health", [&trouble](const Request&) {
    return Reply::json(text_of({{"rescue", lossy_utf8(sentence(trouble))}}));
  });
  add("/v1/info", [&rescue, &trouble, store](const Request&) {
    return Reply::json(info_of(rescue, trouble, store));
  });
  add("/v1/workspaces",
      [&rescue, &trouble, store](const Request&) {
        return Reply::json(list_of(rescue, trouble, store));
      },
      {"deleted"});
  add("/v1/doctor",
      [&trouble, store](const Request&) { return Reply::json(diagnosis_of(trouble, store)); },
      {"deep"});
  add("/v1/rescue/workspaces/{}", [&rescue](const Request& request) {
    return Reply::stream(
        std::make_unique<PipeSource<base::BytePipe>>(rescue.begin_export(request.parameter(0))),
        kBytesType);
  });
  router.refuse_others(refusal(trouble));
}

}  // namespace

int serve_rescue(const Unreadable& trouble, const Settings& settings) {
  base::log(base::LogLevel::error, "daemon.rescue",
            {{"what", trouble.what},
             {"hint", trouble.hint},
             {"copy", trouble.copy},
             {"no_copy", trouble.no_copy},
             {"effect", "serves only the list and the export of workspaces"}});
  const auto& options = settings.services.workspace;
  Rescue rescue({options.store, options.archive_directory, options.disk_first_id});
  Router router;
  add_rescue_routes(router, rescue, trouble, settings);
  WorkerPools worker_pools(settings.threads);
  Dispatcher dispatcher(worker_pools);
  Server server({router, dispatcher, worker_pools, settings.limits});
  server.listen(listen_for_clients(settings.socket, settings.group));
  tell_service_manager("READY=1\nSTATUS=" + base::escape_for_message(sentence(trouble)));
  const bool drained = server.run(true);
  tell_service_manager("STOPPING=1");
  unlink(settings.socket.c_str());
  base::log(base::LogLevel::info, "daemon.stopped", {{"drained", drained ? "yes" : "no"}});
  if (!drained) _exit(0);
  return 0;
}

}  // namespace moorage::daemon
