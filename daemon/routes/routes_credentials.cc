// Credentials that sandboxes use without having them.
#include "base/net/request_policy.h"
#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"
#include "workspace/verbs/credentials.h"

namespace moorage::daemon {
namespace {

using boost::json::object;
using state_db::CredentialRow;
using state_db::SecretSource;

object credential_object(const CredentialRow& row) {
  object made{{"name", row.name}, {"user", workspace::user_name(row.owner_uid)}, {"as", row.form}};
  made["for"] = texts_of(row.urls);
  if (!row.methods.empty()) made["methods"] = texts_of(row.methods);
  if (!row.labels.empty()) {
    object labels;
    for (const auto& [name, value] : row.labels) labels[name] = value;
    made["labels"] = std::move(labels);
  }
  if (!row.variable.empty()) {
    made["variable"] = row.variable;
    made["placeholder"] = base::placeholder_of(row.name);
  }
  if (row.source == SecretSource::command) made["command"] = lossy_utf8(row.place);
  if (row.source == SecretSource::file) made["file"] = lossy_utf8(row.place);
  if (row.source == SecretSource::sealed) made["sealed"] = true;
  put_time(made, "created_at", row.created_wall_ms);
  return made;
}

Reply reply_of(const CredentialRow& row, int status = 200) {
  return Reply::json(text_of(credential_object(row)), status);
}

Reply add(Api& api, const Request& request) {
  auto fields = JsonFields::parse(request.body);
  workspace::CredentialRequest wanted;
  CredentialRow& row = wanted.row;
  row.name = fields.required_text("name");
  row.form = fields.text("as").value_or("bearer");
  row.urls = fields.byte_list("for").value_or(std::vector<std::string>());
  row.methods = fields.byte_list("methods").value_or(std::vector<std::string>());
  row.labels = fields.text_map("labels").value_or(std::map<std::string, std::string>());
  row.variable = fields.text("variable").value_or("");
  const auto command = fields.given_text("command");
  const auto file = fields.given_text("file");
  const auto sealed = fields.given_text("sealed");
  fields.finish();
  if (command.has_value() + file.has_value() + sealed.has_value() != 1)
    throw Error(Code::invalid_argument, "give one of command, file and sealed");
  row.place = command.value_or(file.value_or(""));
  if (file) row.source = SecretSource::file;
  if (sealed) {
    row.source = SecretSource::sealed;
    const auto bytes = base64_decode(*sealed);
    if (!bytes) throw Error(Code::invalid_argument, "'sealed' is not base64");
    wanted.sealed = *bytes;
  }
  return reply_of(api.credentials.add(request.caller, wanted), 201);
}

Reply resume_add(Api& api, const Request& request, const std::string& name) {
  return reply_of(api.credentials.find(request.caller, name), 201);
}

Reply list(Api& api, const Request& request) {
  const auto rows = api.credentials.list(request.caller);
  return Reply::json(text_of({{"credentials", array_of(rows, credential_object)}}));
}

Reply remove(Api& api, const Request& request) {
  api.credentials.remove(request.caller, request.parameter(0));
  return Reply::none();
}

Reply test(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  return reply_of(api.credentials.test(request.caller, request.parameter(0)));
}

Reply key(Api& api, const Request&) {
  return Reply::json(text_of({{"certificate", api.credentials.certificate()}}));
}

}  // namespace

void add_credential_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("GET /v1/credentials", Right::none, list);
  routes.add("POST /v1/credentials", Right::none, add,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resume_add});
  routes.add("GET /v1/credentials/key", Right::none, key);
  routes.add("DELETE /v1/credentials/{}", Right::none, remove,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed_none});
  routes.add("POST /v1/credentials/{}/test", Right::none, test,
             {.lane = Lane::slow, .keep = Keep::nothing});
}

}  // namespace moorage::daemon
