// The source and limits of a new workspace: the options that `create`, which is defined here, and
// `run` share, and their request.
#pragma once

#include <string>
#include <vector>

#include "cli/client/context.h"
#include "cli/commands/policy_options.h"
#include "cli/options.h"

namespace moorage::cli {

struct WorkspaceSource {
  std::string repo;
  std::string from;
  bool ignored = false;  // with the files that git ignores there
  std::string ref;
  std::string branch;
  std::string name;
  std::string image;
  std::string team;
  std::string backend;
  std::string runtime;
  std::vector<std::string> labels;
  PolicyOptions policy;

  void declare(Options& options);
};

// Creates the workspace, with progress on standard error; returns the API's JSON.
std::string make_workspace(Context& context, const WorkspaceSource& source, bool disposable);

// "A=1" -> {"A","1"}; throws Error(invalid_argument) with the option.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option);

}  // namespace moorage::cli
