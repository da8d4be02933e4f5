#include "state_db/tables/credentials.h"

#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/word_list.h"

namespace moorage::state_db {
namespace {

constexpr const char* kSources[] = {"command", "file", "sealed"};

SecretSource source_of(const std::string& word) {
  for (const SecretSource one : {SecretSource::command, SecretSource::file, SecretSource::sealed}) {
    if (word == kSources[static_cast<size_t>(one)]) return one;
  }
  throw Error(Code::corrupted, "a credential has the unknown source '" + word + "'");
}

void read_row(Statement& query, CredentialRow& row) {
  std::string labels, source;
  query.read(row.owner_uid, row.name, row.form, row.urls, row.methods, labels, row.variable, source,
             row.place, row.created_wall_ms);
  row.labels = decode_word_map(labels);
  row.source = source_of(source);
}

constexpr std::string_view kSelect =
    "SELECT owner_uid, name, form, urls, methods, labels, variable, source, place, "
    "created_wall_ms FROM credentials ";

std::string description(const CredentialRow& row) {
  std::string text = row.name + " for";
  for (const std::string& url : row.urls) text += " " + url;
  return text;
}

}  // namespace

void CredentialTable::put(const CredentialRow& row) {
  store_.transaction([&] {
    insert(store_,
           "INSERT OR REPLACE INTO credentials (owner_uid, name, form, urls, methods, labels, "
           "variable, source, place, created_wall_ms)",
           row.owner_uid, row.name, row.form, row.urls, row.methods,
           Blob{encode_word_map(row.labels)}, row.variable,
           kSources[static_cast<size_t>(row.source)], row.place, store_.clock().wall_ms());
    store_.add_event("credential.added", {}, description(row));
  });
}

std::optional<CredentialRow> CredentialTable::find(uint32_t owner_uid, const std::string& name) {
  Statement query = store_.prepare(std::string(kSelect) + "WHERE owner_uid = ? AND name = ?");
  return query.first<CredentialRow>(read_row, owner_uid, name);
}

std::vector<CredentialRow> CredentialTable::of(uint32_t owner_uid) {
  Statement query = store_.prepare(std::string(kSelect) + "WHERE owner_uid = ? ORDER BY name");
  return query.all<CredentialRow>(read_row, owner_uid);
}

std::vector<CredentialRow> CredentialTable::list() {
  Statement query = store_.prepare(std::string(kSelect) + "ORDER BY owner_uid, name");
  return query.all<CredentialRow>(read_row);
}

bool CredentialTable::remove(uint32_t owner_uid, const std::string& name) {
  return store_.transaction([&] {
    const auto row = find(owner_uid, name);
    if (!row) return false;
    change(store_, "DELETE FROM credentials WHERE owner_uid = ? AND name = ?", owner_uid, name);
    store_.add_event("credential.removed", {}, description(*row));
    return true;
  });
}

}  // namespace moorage::state_db
