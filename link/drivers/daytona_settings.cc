#include "link/drivers/daytona_settings.h"

#include <algorithm>

namespace moorage::link {
namespace {

// Settings that a create request repeats unchanged.
JsonObject create_fields(const JsonObject& object) {
  JsonObject create;
  for (const char* name : {"snapshot", "target", "user"}) {
    const std::string given = text_field(object, name);
    if (!given.empty()) create[name] = given;
  }
  const std::string image = text_field(object, "image");
  if (!image.empty())
    create["buildInfo"] = JsonObject{{"dockerfileContent", "FROM " + image + "\n"}};
  const std::pair<const char*, const char*> sizes[] = {
      {"cpu", "cpu"}, {"memory_gb", "memory"}, {"disk_gb", "disk"}};
  for (const auto& [ours, theirs] : sizes) {
    const int64_t given = number_field(object, ours, 0);
    if (given > 0) create[theirs] = given;
  }
  if (!flag_field(object, "internet", true)) create["networkBlockAll"] = true;
  return create;
}

}  // namespace

DaytonaSettings read_daytona_settings(const std::string& text) {
  const boost::json::value value = parse_answer(text.empty() ? "{}" : text);
  const JsonObject& object = object_in(value, "the settings of daytona");
  DaytonaSettings settings;
  settings.allow_plain_http = flag_field(object, "allow_plain_http", false);
  settings.api = parse_origin(text_field(object, "api_url", "https://app.daytona.io/api"),
                              settings.allow_plain_http);
  settings.toolbox_url = text_field(object, "toolbox_url");
  settings.organization = text_field(object, "organization");
  settings.directory = text_field(object, "directory");
  settings.volume = text_field(object, "volume");
  settings.ca_file = text_field(object, "ca_file");
  settings.pauses = text_field(object, "on_stop") == "pause";
  settings.auto_stop_min =
      std::clamp<int64_t>(number_field(object, "auto_stop_min", 15), 2, kLongestStopMin);
  settings.create = create_fields(object);
  settings.create["autoStopInterval"] = settings.auto_stop_min;
  return settings;
}

std::vector<std::pair<std::string, std::string>> daytona_headers(const DaytonaSettings& settings,
                                                                 const std::string& key) {
  std::vector<std::pair<std::string, std::string>> headers{
      {"Authorization", "Bearer " + key},
      {"X-Daytona-SDK-Version", "0.190.0"},  // selects the shape of some answers
      {"X-Daytona-Source", "moorage"}};
  if (!settings.organization.empty())
    headers.emplace_back("X-Daytona-Organization-ID", settings.organization);
  return headers;
}

std::string daytona_name(const Labels& labels) {
  std::string name = "moorage";
  for (const char* label : {kStoreLabel, kSandboxLabel, kGenerationLabel}) {
    const auto found = labels.find(label);
    if (found != labels.end()) name += "-" + found->second;
  }
  return name;
}

}  // namespace moorage::link
