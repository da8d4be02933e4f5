#include "workspace/network/egress_supply.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/net/certificates.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/certificates.h"
#include "workspace/context/credentials.h"

namespace moorage::workspace {
namespace {

constexpr std::chrono::milliseconds kPatience{5'000};
constexpr int64_t kAuthorityDays = 365;  // longer than any sandbox runs

}  // namespace

EgressSupply::EgressSupply(Context& context, const NetworkOptions& options)
    : context_(context), options_(options), secrets_(context.options) {
  write_certificates(context.options.store, context.options.ca_file);
}

base::NetworkSettings EgressSupply::settings_of(base::WorkspaceId workspace) const {
  return network_settings(state_db::WorkspaceTable(context_.store).get(workspace), context_,
                          options_);
}

// What ends TLS comes first, so that no connection finds it missing.
size_t EgressSupply::configure(const LiveSandbox& sandbox, backends::EgressClient& client,
                               const base::NetworkSettings& settings) const {
  const std::vector<std::string> hosts = base::judged_hosts(settings.policy, settings.credentials);
  if (!hosts.empty()) {
    const base::Issuer store(store_authority(context_.options.store));
    const auto issued = store.issue({.name = "Moorage, " + sandbox.sandbox.str(),
                                     .authority = true,
                                     .hosts = hosts,
                                     .days = kAuthorityDays});
    const Fd roots(base::check(memfd_create("roots", MFD_CLOEXEC), "create a file in memory"));
    base::write_all(roots.get(), authorities_outside(context_.options.ca_file));
    base::check(lseek(roots.get(), 0, SEEK_SET), "rewind a file");
    client.set_authorities(issued.certificate + issued.key, roots.get(), kPatience);
  }
  return client.configure(settings, kPatience);
}

void EgressSupply::give_secret(const LiveSandbox& sandbox, const std::string& control_path,
                               const std::string& credential) const {
  try {
    backends::EgressClient client(control_path);
    try {
      const auto workspace = state_db::WorkspaceTable(context_.store).get(sandbox.workspace);
      const auto rows = credentials_of(context_.store, workspace);
      const auto row = std::ranges::find(rows, credential, &state_db::CredentialRow::name);
      if (row == rows.end())
        throw Error(Code::not_found, "the credential " + credential + " does not exist any more");
      const base::Pipe pipe = base::make_pipe();
      client.give_secret(credential, pipe.read_end.get(), kPatience);
      secrets_.write(*row, pipe.write_end.get());
    } catch (const Error& error) {
      client.refuse_secret(credential, error.message(), kPatience);
    }
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "network.no_secret",
              {{"sb", sandbox.sandbox}, {"error", error.message()}});
  }
}

}  // namespace moorage::workspace
