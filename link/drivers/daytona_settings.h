// The settings of daytona.h, and the parts of requests that they make.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "link/drivers/json_reader.h"
#include "link/http/origin.h"

namespace moorage::link {

inline constexpr int64_t kLongestStopMin = 7 * 24 * 60;

struct DaytonaSettings {
  Origin api;
  std::string toolbox_url;
  JsonObject create;  // the fields of a create that do not depend on the sandbox
  std::string organization;
  std::string directory;
  std::string volume;  // its name; empty: none
  std::string ca_file;
  bool allow_plain_http = false;
  bool pauses = false;
  int64_t auto_stop_min = 15;
};

DaytonaSettings read_daytona_settings(const std::string& text);
std::vector<std::pair<std::string, std::string>> daytona_headers(const DaytonaSettings& settings,
                                                                 const std::string& key);
// The same labels are the same name, and a provider may refuse the second one.
std::string daytona_name(const Labels& labels);

}  // namespace moorage::link
