// .gitignore and .gitattributes of an agent: patterns never hang on any path; also runs the
// conversions that attributes request, over any content.
#include "fuzz.h"
#include "repo_cache/formats/attributes.h"
#include "repo_cache/formats/ignore.h"
#include "repo_cache/formats/path_pattern.h"
#include "repo_cache/formats/worktree_filter.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const std::string path(script.piece());
  const std::string directory(script.piece());
  const std::string_view content = script.piece();
  const std::string_view file = script.rest();

  repo_cache::glob_matches(file, path, true);
  repo_cache::glob_matches(file, path, false);
  repo_cache::parse_path_pattern(file).matches(path, true);

  repo_cache::IgnoreRules ignore;
  ignore.add("", file);
  ignore.add(directory, file);
  ignore.set_exclude(content);
  ignore.matches(path, false);
  ignore.matches(path, true);

  repo_cache::Attributes attributes;
  attributes.add("", file);
  attributes.add(directory, content);
  const repo_cache::Conversion conversion = attributes.conversion(path);
  fuzz::refused([&] { repo_cache::to_worktree(conversion, content, std::string(40, 'a')); });
  fuzz::refused([&] { repo_cache::to_blob(conversion, content, std::nullopt); });
  fuzz::refused([&] { repo_cache::to_blob(conversion, content, file); });
  return 0;
}
