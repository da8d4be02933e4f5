#include "workspace/services/services.h"

#include "state_db/tables/credentials.h"
#include "workspace/access/placement.h"
#include "workspace/archive/store.h"
#include "workspace/context/secret_reader.h"

namespace moorage::workspace {
namespace {

GcRules gc_rules(GcRules rules, Context& context) {
  rules.archive_elsewhere = ArchiveStore(context).is_elsewhere();
  return rules;
}

// Providers' keys are credentials of root.
backends::BackendOptions with_credentials(backends::BackendOptions options, state_db::Store& store,
                                          const Options& workspace) {
  options.remote.credential_key = [&store,
                                   secrets = SecretReader(workspace)](const std::string& name) {
    const auto row = state_db::CredentialTable(store).find(0, name);
    return row ? secrets.link_key(*row) : base::LinkKey{.credential = name};
  };
  return options;
}

Context checked(Context context) {
  check_rules(*context.options.placement_rules->get(), context.backends.names());
  return context;
}

}  // namespace

Services::Services(state_db::Store& opened, const ServiceOptions& options)
    : store(opened),
      registry(with_credentials(options.backends, opened, options.workspace)),
      repos(options.repos),
      storage(layers::make_overlay_storage(options.storage)),
      context(checked({.store = store,
                       .repos = repos,
                       .base_trees = base_trees,
                       .backends = registry,
                       .storage = *storage,
                       .live = live,
                       .locks = locks,
                       .options = options.workspace,
                       .metrics = metrics})),
      network_options(options.network),
      networks(context, watcher, sightings, network_options),
      waiters([this](base::ExecId id) {
        return state_db::ExecTable(store).get(id).state != state_db::ExecState::running;
      }),
      replica(context, options.replica),
      output_retention(context, options.output),
      gc(context, leases, mirrors, integrity, archives, gc_rules(options.gc, context)),
      budgets(context, gc, spools, options.budgets) {}

}  // namespace moorage::workspace
