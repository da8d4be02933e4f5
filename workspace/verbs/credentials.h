// Adds, lists, tests and removes credentials. They belong to the caller, for that user's
// workspaces. A change applies to running sandboxes before the verb returns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "workspace/access/access.h"
#include "workspace/context/context.h"
#include "workspace/context/secret_reader.h"
#include "workspace/network/networks.h"

namespace moorage::workspace {

struct CredentialRequest {
  state_db::CredentialRow row;  // owner and time are set by add()
  std::string sealed;           // for SecretSource::sealed: CMS in DER
};

class Credentials {
 public:
  Credentials(Context& context, Networks& networks)
      : context_(context), networks_(networks), secrets_(context.options) {}

  // Reads the secret once: a credential without one is refused. Replaces the caller's of
  // that name.
  state_db::CredentialRow add(const Caller& caller, const CredentialRequest& request);
  std::vector<state_db::CredentialRow> list(const Caller& caller);  // root: of all users
  state_db::CredentialRow find(const Caller& caller, const std::string& name);  // not_found
  void remove(const Caller& caller, const std::string& name);
  // Throws the reason if its secret cannot be read.
  state_db::CredentialRow test(const Caller& caller, const std::string& name);
  // PEM, to seal secrets for.
  std::string certificate();

  static constexpr size_t kMaxSealed = 128 << 10;  // bytes
  static constexpr size_t kMaxOfOwner = 200;

 private:
  void keep(const Caller& caller, const state_db::CredentialRow& row);
  void tell_of_change(uint32_t owner_uid);

  Context& context_;
  Networks& networks_;
  const SecretReader secrets_;
};

}  // namespace moorage::workspace
