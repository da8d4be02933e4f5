// Credentials that commands in sandboxes use without having them. A row says where the secret comes
// from and where it may go; the secret itself is never here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moorage::state_db {

class Store;

// The place that a needed secret comes from.
enum class SecretSource {
  command,  // what it prints, run as the owner
  file,     // its content, read as the owner
  sealed,   // kept encrypted in the store: CMS (RFC 5652), DER
};

struct CredentialRow {
  uint32_t owner_uid = 0;  // of the workspaces that may use it, and of the command and the file
  std::string name{};
  std::string form{};                  // of base/net/request_policy.h: "bearer", "header:X-Api-Key"
  std::vector<std::string> urls{};     // where it is sent: "https://api.example.com/v1/"
  std::vector<std::string> methods{};  // of HTTP; empty: all
  std::map<std::string, std::string> labels{};  // that a workspace must have; empty: none
  std::string variable{};                       // that holds the placeholder inside; empty: none
  SecretSource source = SecretSource::command;
  std::string place{};  // the command, the file's path, or the name of the sealed one in the store
  int64_t created_wall_ms = 0;
};

class CredentialTable {
 public:
  explicit CredentialTable(Store& store) : store_(store) {}

  // Replaces the owner's credential of that name. With an event.
  void put(const CredentialRow& row);
  std::optional<CredentialRow> find(uint32_t owner_uid, const std::string& name);
  std::vector<CredentialRow> of(uint32_t owner_uid);         // by name
  std::vector<CredentialRow> list();                         // of all owners
  bool remove(uint32_t owner_uid, const std::string& name);  // with an event; false: there was none

 private:
  Store& store_;
};

}  // namespace moorage::state_db
