// Package configfile reads a YAML file that a person wrote: connections, bulk
// targets, the daemon's configuration, quotas, scenarios and timelines. It says
// everything that is wrong with it at once, each problem with file, line, column,
// field and what is wanted there, in the same words for every file.
//
//	root, file := configfile.Parse("x.yaml", src, configfile.Options{What: "scenario"})
//	s := root.Section()
//	s.Text("name", &name)
//	s.Duration("horizon", &horizon, time.Second, time.Hour)
//	s.Done()
//	return file.Err()
//
// [Parse] gives a tree of [Node]s with their places. [Node.Section] reads a mapping
// key by key; all its methods do nothing on a nil Section, which is one that is
// absent or was reported already. A secret is a reference: ${NAME} to the
// environment, ${file:PATH} to a file. $${ is a literal ${. No value of a secret,
// nor what stands at its place, is in a problem.
//
// Anchors, aliases, merge keys and tags are refused: a file says what it means in
// one place. A [File] and what belongs to it are for one goroutine; a [Secret] and
// an [Error] are values that may be read from many.
package configfile
