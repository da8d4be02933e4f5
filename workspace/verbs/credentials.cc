#include "workspace/verbs/credentials.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "workspace/context/credentials.h"

namespace moorage::workspace {
namespace {

using state_db::CredentialRow;
using state_db::SecretSource;

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
  base::CredentialScope scope;
  base::parse_form(row.form, scope);
  for (const std::string& url : row.urls) base::parse_scope(url);
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

}  // namespace

CredentialRow Credentials::add(const Caller& caller, const CredentialRequest& request) {
  check(request);
  CredentialRow row = request.row;
  row.owner_uid = caller.uid;
  const auto guard = context_.locks.lock(
      "credential " + std::to_string(caller.uid) + " " + row.name, "credential add");
  if (row.source == SecretSource::sealed) {
    const std::string path = sealed_path(context_.options.store, row.owner_uid, row.name);
    base::make_directories(context_.options.store + "/credentials");
    base::write_file_durable(path, request.sealed);
  }
  secrets_.test(row);
  state_db::CredentialTable(context_.store).put(row);
  base::log(base::LogLevel::info, "credential.added", {{"uid", row.owner_uid}, {"name", row.name}});
  networks_.apply_to_owner(row.owner_uid);
  return find(caller, row.name);
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
  const CredentialRow row = find(caller, name);
  const auto guard =
      context_.locks.lock("credential " + std::to_string(caller.uid) + " " + name, "credential rm");
  state_db::CredentialTable(context_.store).remove(row.owner_uid, name);
  if (row.source == SecretSource::sealed)
    unlink(sealed_path(context_.options.store, row.owner_uid, name).c_str());
  base::log(base::LogLevel::info, "credential.removed", {{"uid", row.owner_uid}, {"name", name}});
  networks_.apply_to_owner(row.owner_uid);
}

CredentialRow Credentials::test(const Caller& caller, const std::string& name) {
  const CredentialRow row = find(caller, name);
  secrets_.test(row);
  return row;
}

}  // namespace moorage::workspace
