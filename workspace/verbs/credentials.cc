#include "workspace/verbs/credentials.h"

#include <algorithm>
#include <set>

#include "backends/registry.h"
#include "backends/remote/machines.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "workspace/access/keyed_request.h"
#include "workspace/context/credentials.h"

namespace moorage::workspace {
namespace {

using state_db::CredentialRow;
using state_db::SecretSource;

MOORAGE_CRASH_POINT(after_file, "credential_add.after_file");
MOORAGE_CRASH_POINT(after_row, "credential_add.after_row");
MOORAGE_CRASH_POINT(after_removal, "credential_rm.after_row");

constexpr size_t kMaxName = 64;
constexpr size_t kMaxUrls = 100;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

void check_name(const std::string& name) {
  const auto fits = [](char c) {
    return is_lower(c) || is_digit(c) || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= kMaxName && std::ranges::all_of(name, fits) &&
      (is_lower(name[0]) || is_digit(name[0]))) {
    return;
  }
  throw Error(Code::invalid_argument, "not a valid credential name: '" + name + "'",
              "1 to 64 of a-z, 0-9, '-', '_' and '.', beginning with a letter or a digit");
}

void check_variable(const std::string& name) {
  if (name.empty()) return;
  const bool fits = std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
  if (!fits || is_digit(name[0]))
    throw Error(Code::invalid_argument, "not a valid variable name: '" + name + "'",
                "like ANTHROPIC_API_KEY");
}

void check_methods(const std::vector<std::string>& methods) {
  for (const std::string& method : methods) {
    if (method.empty() || !std::ranges::all_of(method, [](char c) { return c >= 'A' && c <= 'Z'; }))
      throw Error(Code::invalid_argument, "not a method of HTTP: '" + method + "'",
                  "like GET or POST");
  }
}

void check(const CredentialRequest& request) {
  const CredentialRow& row = request.row;
  check_name(row.name);
  check_variable(row.variable);
  check_methods(row.methods);
  if (row.urls.empty() || row.urls.size() > kMaxUrls)
    throw Error(Code::invalid_argument, "name 1 to 100 places that the credential is for",
                "like --for https://api.example.com/v1/");
  base::CredentialScope form;
  base::parse_form(row.form, form);
  const bool is_key = form.form == base::CredentialForm::ssh_key;
  for (const std::string& url : row.urls) {
    if ((base::parse_scope(url).form == base::CredentialForm::ssh_key) == is_key) continue;
    throw Error(
        Code::invalid_argument,
        is_key ? "an ssh key cannot be sent to " + url : "only an ssh key can be used at " + url,
        "ssh:// URLs go with --as ssh-key, https:// URLs with the other forms");
  }
  if (is_key && !(row.variable.empty() && row.methods.empty()))
    throw Error(Code::invalid_argument, "an ssh key has no variable and no methods");
  if (row.source == SecretSource::file && !row.place.starts_with('/'))
    throw Error(Code::invalid_argument, "the path of the credential's file is not absolute",
                "moorage credential add resolves it; over HTTP, send an absolute one");
  if (row.source == SecretSource::sealed
          ? request.sealed.empty() || request.sealed.size() > Credentials::kMaxSealed
          : row.place.empty()) {
    throw Error(Code::invalid_argument, "the credential has no secret",
                "give a command, a file, or a sealed secret");
  }
}

std::string lock_name(const Caller& caller, const std::string& name) {
  return "credential " + std::to_string(caller.uid) + " " + name;
}

void remove_file(const std::string& store, const std::string& sealed_name) {
  base::remove_tree(sealed_path(store, sealed_name));
}

}  // namespace

std::string Credentials::certificate() {
  const auto guard = context_.locks.lock("the key of credentials", "making it");
  return secrets_.certificate();
}

CredentialRow Credentials::add(const Caller& caller, const CredentialRequest& request) {
  check(request);
  CredentialRow row = request.row;
  row.owner_uid = caller.uid;
  const auto guard = context_.locks.lock(lock_name(caller, row.name), "credential add");
  state_db::CredentialTable table(context_.store);
  const auto before = table.find(caller.uid, row.name);
  if (!before && table.of(caller.uid).size() >= kMaxOfOwner)
    throw Error(Code::resource_exhausted, "a user has at most 200 credentials",
                "remove some: moorage credential rm NAME");
  const std::string& store = context_.options.store;
  const std::string former =
      before && before->source == SecretSource::sealed ? before->place : std::string();
  if (row.source == SecretSource::sealed) {
    row.place = sealed_name(row.owner_uid, row.name, request.sealed);
    base::make_directories(store + "/credentials");
    base::write_file_durable(sealed_path(store, row.place), request.sealed);
    after_file.pass();
  }
  try {
    secrets_.test(row);
  } catch (const Error&) {
    if (row.source == SecretSource::sealed && row.place != former) remove_file(store, row.place);
    if (caller.keyed) caller.keyed->undecided = true;  // it has the command's words: kept nowhere
    throw;
  }
  keep(caller, row);
  after_row.pass();
  tell_of_change(row.owner_uid);
  if (!former.empty() && former != row.place) remove_file(store, former);
  base::log(base::LogLevel::info, "credential.added", {{"uid", row.owner_uid}, {"name", row.name}});
  return find(caller, row.name);
}

void Credentials::keep(const Caller& caller, const CredentialRow& row) {
  context_.store.transaction([&] {
    state_db::CredentialTable(context_.store).put(row);
    join_key(context_.store, caller, row.name);
  });
}

void Credentials::tell_of_change(uint32_t owner_uid) {
  networks_.apply_to_owner(owner_uid);
  if (owner_uid != 0) return;
  for (backends::Backend* backend : context_.backends.all()) {
    if (backends::Machines* machines = backend->machines()) machines->find_key();
  }
}

CredentialRow Credentials::find(const Caller& caller, const std::string& name) {
  auto row = state_db::CredentialTable(context_.store).find(caller.uid, name);
  if (!row) {
    throw Error(Code::not_found, "there is no credential " + name,
                "list them: moorage credential ls");
  }
  return *row;
}

std::vector<CredentialRow> Credentials::list(const Caller& caller) {
  state_db::CredentialTable table(context_.store);
  return caller.root() ? table.list() : table.of(caller.uid);
}

void Credentials::remove(const Caller& caller, const std::string& name) {
  const auto guard = context_.locks.lock(lock_name(caller, name), "credential rm");
  const CredentialRow row = find(caller, name);
  context_.store.transaction([&] {
    state_db::CredentialTable(context_.store).remove(row.owner_uid, name);
    join_key(context_.store, caller, name);
  });
  after_removal.pass();
  tell_of_change(row.owner_uid);
  if (row.source == SecretSource::sealed) remove_file(context_.options.store, row.place);
  base::log(base::LogLevel::info, "credential.removed", {{"uid", row.owner_uid}, {"name", name}});
}

CredentialRow Credentials::test(const Caller& caller, const std::string& name) {
  const CredentialRow row = find(caller, name);
  secrets_.test(row);
  return row;
}

}  // namespace moorage::workspace
